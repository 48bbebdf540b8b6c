//! The PROXY protocol's header, versions 1 and 2, as HAProxy's specification has it
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>); pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// They may become a header.
    Incomplete,
    /// They never do.
    NotOne,
    /// They began like one.
    Malformed,
    Header {
        /// The client; `None`: the peer speaks for itself, or nobody knows.
        source: Option<IpAddr>,
        /// Bytes of the header; whatever comes after is the client's.
        length: usize,
    },
}

use Parsed::{Header, Incomplete, Malformed, NotOne};

/// What the first version begins with (§2.1).
const V1: &[u8] = b"PROXY ";
/// A line, its end included.
const V1_MAX: usize = 107;
/// What the second version begins with (§2.2).
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, length.
const V2_HEAD: usize = 16;
/// Addresses and what else is told (TLVs). Balancers tell some hundred bytes; a client's certificate is some thousand.
const V2_MAX: usize = 16 * 1024;

/// Looks at all bytes that came so far.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    if bytes.starts_with(V2) {
        v2(bytes)
    } else if bytes.starts_with(V1) {
        v1(bytes)
    } else if V2.starts_with(bytes) || V1.starts_with(bytes) {
        Incomplete
    } else {
        NotOne
    }
}

fn v1(bytes: &[u8]) -> Parsed {
    let seen = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = seen.windows(2).position(|two| two == b"\r\n") else {
        return if seen.len() < V1_MAX { Incomplete } else { Malformed };
    };
    let length = end + 2;
    let told = &bytes[V1.len()..end];
    if told == b"UNKNOWN" || told.starts_with(b"UNKNOWN ") {
        // Whatever else it says is to be ignored.
        return Header { source: None, length };
    }
    let source = std::str::from_utf8(told).ok().and_then(source);
    if source.is_some() { Header { source, length } } else { Malformed }
}

/// Whom a line names after `PROXY `.
fn source(line: &str) -> Option<IpAddr> {
    let mut words = line.split(' ');
    let (family, source, target) = (words.next()?, words.next()?, words.next()?);
    let ports = [words.next()?, words.next()?];
    let source: IpAddr = match family {
        "TCP4" => (source.parse::<Ipv4Addr>().ok()?, target.parse::<Ipv4Addr>().ok()?).0.into(),
        "TCP6" => (source.parse::<Ipv6Addr>().ok()?, target.parse::<Ipv6Addr>().ok()?).0.into(),
        _ => return None,
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok();
    (ports.into_iter().all(is_port) && words.next().is_none()).then_some(source.to_canonical())
}

fn v2(bytes: &[u8]) -> Parsed {
    let Some(&[command, family, high, low]) = bytes.get(V2.len()..V2_HEAD) else { return Incomplete };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Malformed,
    };
    let addresses = match family {
        // Whatever a peer says that speaks for itself is to be ignored (§2.2).
        _ if is_local => 0,
        // Unspecified; TCP and UDP over IPv4, over IPv6; Unix sockets.
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        _ => return Malformed,
    };
    if length > V2_MAX || length < addresses {
        return Malformed;
    }
    let Some(body) = bytes.get(V2_HEAD..V2_HEAD + length) else { return Incomplete };
    let source = match (is_local, family) {
        (false, 0x11) => body.first_chunk::<4>().map(|ip| IpAddr::from(*ip)),
        (false, 0x21) => body.first_chunk::<16>().map(|ip| IpAddr::from(*ip)),
        _ => None,
    };
    Header { source: source.map(|ip| ip.to_canonical()), length: V2_HEAD + length }
}

#[cfg(test)]
mod tests;
