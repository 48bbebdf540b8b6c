//! What E2B's node does to a sandbox's connections when it pauses: whoever waits at the other end is
//! told at once, by a reset, instead of waiting for a sleeper.

use std::{io, net::IpAddr};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{
    proc_tree::{Process, live_tree},
    sockets::{self, Held, State},
};

/// Resets the connections that the tree has on its own address, and returns how many. Listeners stay,
/// and so does what was not accepted yet: the sandbox takes it up when it goes on. Connections between
/// two processes of the tree stay as well: they sleep and wake together.
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
            Ok(()) => count += 1,
            Err(error) => {
                tracing::warn!(%error, peer = %socket.remote, "a connection of the paused sandbox could not be reset");
            }
        }
    }
    count
}

/// Works on a duplicate of the descriptor, so that the stopped process need not take part: leaving the
/// peer (`connect` to no address) sends the reset (connect(2), `AF_UNSPEC`).
fn reset(holder: Held) -> io::Result<()> {
    let pid = Pid::from_raw(holder.pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let socket = pidfd_getfd(process, holder.fd, PidfdGetfdFlags::empty())?;
    rustix::net::connect_unspec(socket)?;
    Ok(())
}
