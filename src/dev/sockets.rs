//! The machine's TCP sockets and who holds them: `/proc/net/tcp`, `/proc/net/tcp6`, `/proc/<pid>/fd`.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use super::proc_tree::Stat;

/// Where a connection stands, as far as it matters here (`include/net/tcp_states.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Listening,
    /// Somebody at the other end may still wait: anything but listening, closed and `TIME_WAIT`.
    Connected,
    Over,
}

/// One line of the table. Addresses that carry IPv4 in IPv6 are told as IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: State,
    /// 0 where no process holds it (`TIME_WAIT`, not yet accepted).
    pub(crate) inode: u64,
    /// Bound as IPv6; decides between two wildcards.
    pub(crate) v6: bool,
}

/// A descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) pid: i32,
    pub(crate) fd: i32,
}

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// Every TCP socket of this network namespace.
pub(crate) fn table() -> Vec<Socket> {
    let texts = TABLES.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.flat_map(|text| text.lines().filter_map(parse_line).collect::<Vec<_>>()).collect()
}

/// Those that listen. They come first (the kernel's `proc_net_tcp.rst`), and on a busy machine they are few
/// before thousands of ended connections: those are not even asked for.
pub(crate) fn listening() -> Vec<Socket> {
    // A page, as the kernel hands them out.
    const PAGE: usize = 4096;
    let files = TABLES.iter().filter_map(|path| fs::File::open(path).ok());
    let lines = files.flat_map(|file| {
        let lines = BufReader::with_capacity(PAGE, file).lines().map_while(Result::ok);
        let sockets = lines.skip(1).map_while(|line| parse_line(&line));
        sockets.take_while(|socket| socket.state == State::Listening)
    });
    lines.collect()
}

/// `sl local rem st tx:rx tr:when retrnsmt uid timeout inode …`; the heading is no such line.
fn parse_line(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, _, _, _, _, _, inode, ..] = fields[..] else {
        return None;
    };
    let v6 = local.len() > "01234567:0000".len();
    Some(Socket {
        local: parse_address(local)?,
        remote: parse_address(remote)?,
        state: match u8::from_str_radix(state, 16).ok()? {
            0x0A => State::Listening,
            0x06 | 0x07 => State::Over,
            _ => State::Connected,
        },
        inode: inode.parse().ok()?,
        v6,
    })
}

/// Hexadecimal words of 32 bits as they lie in memory, then the port as a number.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| -> Option<[u8; 4]> {
        let hex = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(hex, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The sockets that these processes hold, by inode.
pub(crate) fn held_by(processes: &[Stat]) -> HashMap<u64, Held> {
    let mut held = HashMap::new();
    for stat in processes {
        let pid = stat.process.pid;
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in descriptors.flatten() {
            let inode = fs::read_link(entry.path()).ok().and_then(|target| parse_link(target.to_str()?));
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            if let (Some(inode), Some(fd)) = (inode, fd) {
                held.insert(inode, Held { pid, fd });
            }
        }
    }
    held
}

/// `socket:[12345]`
fn parse_link(target: &str) -> Option<u64> {
    let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// The listeners that would take a connection to this address: those bound to it, otherwise the
/// wildcards, IPv4 before IPv6, as the kernel chooses.
pub(crate) fn listeners_for(address: SocketAddr, table: &[Socket]) -> Vec<&Socket> {
    let on_port = |socket: &&Socket| socket.state == State::Listening && socket.local.port() == address.port();
    let pick = |wanted: &dyn Fn(&Socket) -> bool| -> Vec<&Socket> {
        let all = table.iter().filter(on_port);
        all.filter(|socket| wanted(socket)).collect()
    };
    let exact = pick(&|socket| socket.local.ip() == address.ip());
    if !exact.is_empty() {
        return exact;
    }
    let same_family = pick(&|socket| socket.local.ip().is_unspecified() && socket.v6 == address.is_ipv6());
    if !same_family.is_empty() || address.is_ipv6() {
        return same_family;
    }
    pick(&|socket| socket.local.ip().is_unspecified() && socket.v6)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn lines_of_both_families_are_read() {
        let v4 = parse_line(
            "   0: 0240507F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0000000000000000 100 0 0 10 0",
        );
        let want = Socket {
            local: "127.80.64.2:8000".parse().expect("an address"),
            remote: "0.0.0.0:0".parse().expect("an address"),
            state: State::Listening,
            inode: 4242,
            v6: false,
        };
        assert_eq!(v4, Some(want));
        let mapped = parse_line("   1: 0000000000000000FFFF00000240507F:1F40 0000000000000000FFFF00000100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 7 1").expect("a line");
        assert_eq!(mapped.local, "127.80.64.2:8000".parse().expect("an address"));
        assert_eq!(mapped.state, State::Connected);
        assert!(mapped.v6);
        assert_eq!(parse_line("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn links_to_sockets_only() {
        assert_eq!(parse_link("socket:[99]"), Some(99));
        assert_eq!(parse_link("pipe:[99]"), None);
        assert_eq!(parse_link("/dev/null"), None);
    }

    fn listener(local: &str, v6: bool, inode: u64) -> Socket {
        Socket {
            local: local.parse().expect("an address"),
            remote: (Ipv4Addr::UNSPECIFIED, 0).into(),
            state: State::Listening,
            inode,
            v6,
        }
    }

    #[test]
    fn a_specific_listener_wins_over_wildcards_and_ipv4_over_ipv6() {
        let table = [
            listener("[::]:80", true, 1),
            listener("0.0.0.0:80", false, 2),
            listener("127.64.0.1:80", false, 3),
            listener("127.64.0.1:80", true, 4),
            listener("[::]:81", true, 5),
            listener("127.64.0.9:82", false, 6),
        ];
        let inodes = |address: &str| -> Vec<u64> {
            let address = address.parse().expect("an address");
            let found = listeners_for(address, &table);
            found.iter().map(|socket| socket.inode).collect()
        };
        assert_eq!(inodes("127.64.0.1:80"), [3, 4]);
        assert_eq!(inodes("127.64.0.2:80"), [2]);
        assert_eq!(inodes("127.64.0.2:81"), [5]);
        assert_eq!(inodes("127.64.0.2:82"), [0_u64; 0]);
        assert_eq!(inodes("[::1]:80"), [1]);
    }

    #[test]
    fn an_own_listener_is_found_and_held() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (table, listening) = (table(), listening());
        let found = listeners_for(address, &listening);
        assert_eq!(found.len(), 1);
        assert_eq!(listeners_for(address, &table), found);
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let all = super::super::proc_tree::scan();
        let me: Vec<Stat> = all.into_iter().filter(|stat| stat.process.pid == pid).collect();
        assert!(held_by(&me).contains_key(&found[0].inode));
    }
}
