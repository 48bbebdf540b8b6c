//! The PROXY header: what the first bytes of a connection are, however they come in pieces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use client_proxy::app::fuzzing::{Introduction, introduction};

/// No header is longer: signature and lengths, and 16 KiB of what version 2 may tell.
const LONGEST: usize = 16 + 16 * 1024;

/// A connection's bytes.
///
/// # Panics
/// Where something does not hold.
pub fn check(input: &[u8]) {
    let told = introduction(input);
    // The first verdict is final: more bytes change nothing. So it is the same in whatever pieces they come.
    let first = (0..=input.len()).find(|length| introduction(&input[..*length]) != Introduction::Incomplete);
    match first {
        Some(length) => {
            assert_eq!(introduction(&input[..length]), told, "after {length} bytes");
            assert!(length <= LONGEST, "{length} bytes were waited for");
        }
        None => assert!(told == Introduction::Incomplete && input.len() < LONGEST),
    }
    if let Introduction::Header(length, source) = told {
        assert_eq!(first, Some(length), "a header is told when it is all there, and nothing behind it is read");
        assert_eq!(source, named(&input[..length]), "{:?}", input[..length].escape_ascii().to_string());
    }
}

/// Whom a header names, read another way.
fn named(header: &[u8]) -> Option<IpAddr> {
    if header[0] == b'P' {
        let line = std::str::from_utf8(header).ok()?.trim_end_matches("\r\n");
        let words: Vec<&str> = line.split(' ').collect();
        let address = match words[1] {
            "TCP4" => IpAddr::V4(words[2].parse::<Ipv4Addr>().expect("an address")),
            "TCP6" => IpAddr::V6(words[2].parse::<Ipv6Addr>().expect("an address")),
            _ => return None,
        };
        assert!(words.len() == 6 && words[4..].iter().all(|port| port.parse::<u16>().is_ok()), "{line:?}");
        return Some(address.to_canonical());
    }
    assert_eq!(header.len(), 16 + usize::from(header[14]) * 256 + usize::from(header[15]));
    // PROXY, and TCP; otherwise the peer speaks for itself, or nobody knows.
    match (header[12] & 15, header[13]) {
        (1, 0x11) => Some(IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19]))),
        (1, 0x21) => {
            let address: [u8; 16] = header[16..32].try_into().expect("sixteen bytes");
            Some(IpAddr::from(address).to_canonical())
        }
        _ => None,
    }
}
