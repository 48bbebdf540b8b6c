//! What E2B's node does to a sandbox's connections when it pauses: whoever waits at the other end is
//! told at once, by a reset, instead of waiting for a sleeper. But for requests of which it has read nothing:
//! they are answered after the wake.

use std::{io, net::IpAddr, os::fd::AsFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvFlags, connect_unspec, recv,
        sockopt::{set_socket_keepalive, socket_error, socket_keepalive},
    },
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{
    proc_tree::{Process, live_tree},
    sockets::{self, Held, State},
};

/// Resets the connections that the tree has on its own address, and returns how many. Listeners stay,
/// and so does what was not accepted yet: the sandbox takes it up when it goes on. Connections between
/// two processes of the tree stay as well: they sleep and wake together.
///
/// So does one on which a request of HTTP/1.1 waits that was not read. What was read in part, such as an upload in the
/// middle, is cut: nobody knows when the sandbox goes on. Only the bytes tell: an upload whose first unread line looks
/// like a request's (a log, a recording of HTTP) is taken for one, stays, and goes on after the wake.
pub(crate) fn reset_connections(root: Process, ip: IpAddr) -> usize {
    let held = sockets::held_by(&live_tree(root));
    let table = sockets::table();
    let mut count = 0;
    for socket in &table {
        let Some(holder) = held.get(&socket.inode) else {
            continue;
        };
        if socket.state != State::Connected || socket.local.ip() != ip {
            continue;
        }
        let inside = table
            .iter()
            .any(|peer| peer.local == socket.remote && peer.remote == socket.local && held.contains_key(&peer.inode));
        if inside {
            continue;
        }
        match reset(*holder) {
            Ok(true) => count += 1,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, peer = %socket.remote, "a connection of the paused sandbox could not be reset");
            }
        }
    }
    count
}

/// Works on a duplicate of the descriptor, so that the stopped process need not take part. Tells whether it did so.
fn reset(holder: Held) -> io::Result<bool> {
    let pid = Pid::from_raw(holder.pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, holder.fd, PidfdGetfdFlags::empty())?;
    let mut ahead = [0; LONGEST_LINE];
    // Looked at last: what comes after this is lost.
    let waiting = recv(&socket, &mut ahead, RecvFlags::PEEK | RecvFlags::DONTWAIT).map_or(0, |(read, _)| read);
    if begins_a_request(&ahead[..waiting]) {
        return Ok(false);
    }
    cut(&socket)?;
    Ok(true)
}

/// Leaving the peer (`connect` to no address) sends the reset (connect(2), `AF_UNSPEC`). One that has ended its side
/// is sent it as well, for it may wait for an answer; but that it had done so is nowhere to be seen afterwards. So it
/// is noted, by an option of the socket that means nothing once this is over.
pub(super) fn cut(socket: impl AsFd) -> io::Result<()> {
    let mut ended = [PollFd::new(&socket, PollFlags::RDHUP)];
    if poll(&mut ended, Some(&Timespec::default()))? > 0 {
        set_socket_keepalive(&socket, true)?;
    }
    connect_unspec(&socket)?;
    Ok(())
}

/// Whether a pause has cut this off while its other end was there: it is connected to nobody then, while one that the
/// other end has left was read to its end. (Either may tell of a reset before, once.)
pub(super) fn was_cut(socket: impl AsFd) -> bool {
    let _ = socket_error(&socket);
    let read = recv(&socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    let had_left = socket_keepalive(&socket).unwrap_or(false);
    read.is_err_and(|error| error == Errno::NOTCONN) && !had_left
}

/// Request lines that are longer are not looked for.
const LONGEST_LINE: usize = 8 * 1024;

/// Whether these bytes are a request's first (RFC 9112 §3), and not what comes after the head of one.
fn begins_a_request(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return false;
    };
    let words: Vec<&[u8]> = bytes[..end].split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return false;
    };
    !method.is_empty()
        && method.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-')
        && !target.is_empty()
        && version.starts_with(b"HTTP/1.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_its_first_line() {
        for (bytes, begins) in [
            ("POST /process.Process/List HTTP/1.1\r\nHost: a\r\n\r\n{}", true),
            ("M-SEARCH * HTTP/1.0\n", true),
            ("", false),
            ("POST /half HTTP/1.1", false),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
            ("5\r\nhello\r\n", false),
            ("Host: a\r\n\r\n", false),
            ("POST  HTTP/1.1\r\n", false),
            (" / HTTP/1.1\r\n", false),
            ("\r\n", false),
        ] {
            assert_eq!(begins_a_request(bytes.as_bytes()), begins, "{bytes:?}");
        }
    }
}
