use proptest::prelude::*;

use super::*;

/// So many bytes or more are never incomplete.
const MAX: usize = V2_HEAD + V2_MAX;

/// A header of version 2.
fn v2_of(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a short body").to_be_bytes();
    [V2, &[command, family], &length, body].concat()
}

fn body(addresses: &[u8], size: usize) -> Vec<u8> {
    let mut body = addresses.to_vec();
    body.resize(size, 7);
    body
}

fn header(source: &str, length: usize) -> Parsed {
    Header { source: source.parse().ok(), length }
}

#[test]
fn the_first_version_is_read() {
    let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(V1_MAX - 16));
    assert_eq!(longest.len(), V1_MAX);
    for (line, want) in [
        ("PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n", header("192.0.2.7", 41)),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 0 65535\r\nGET / HTTP/1.1\r\n", header("192.0.2.7", 39)),
        ("PROXY TCP6 2001:db8::7 ::1 1 2\r\n", header("2001:db8::7", 32)),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n", header("192.0.2.7", 37)),
        ("PROXY UNKNOWN\r\n", header("", 15)),
        ("PROXY UNKNOWN ffff::1 what ever\r\nPROXY", header("", 33)),
        (&longest, header("", V1_MAX)),
        (&longest.replace('\r', "f"), Malformed),
        (&"PROXY ".repeat(100), Malformed),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 56324\r\n", Malformed),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3\r\n", Malformed),
        ("PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n", Malformed),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n", Malformed),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 +1 2\r\n", Malformed),
        ("PROXY TCP4 192.0.2.07 10.0.0.1 1 2\r\n", Malformed),
        ("PROXY TCP4 ::1 ::1 1 2\r\n", Malformed),
        ("PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n", Malformed),
        ("PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n", Malformed),
        ("PROXY \r\n", Malformed),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n\r\n", Malformed),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", NotOne),
        ("PROXYTCP4", NotOne),
        ("proxy TCP4", NotOne),
        ("GET / HTTP/1.1\r\n", NotOne),
        ("", Incomplete),
        ("PROXY", Incomplete),
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r", Incomplete),
    ] {
        assert_eq!(parse(line.as_bytes()), want, "{line:?}");
    }
}

#[test]
fn the_second_version_is_read() {
    let (v4, v6) = ([192, 0, 2, 7, 10, 0, 0, 1, 1, 2, 3, 4], "2001:db8::7".parse::<Ipv6Addr>().expect("one").octets());
    let mapped = "::ffff:192.0.2.7".parse::<Ipv6Addr>().expect("one").octets();
    for (command, family, body, want) in [
        (0x21, 0x11, body(&v4, 12), header("192.0.2.7", 28)),
        (0x21, 0x11, body(&v4, 300), header("192.0.2.7", 316)),
        (0x21, 0x11, body(&v4, V2_MAX), header("192.0.2.7", MAX)),
        (0x21, 0x21, body(&v6, 36), header("2001:db8::7", 52)),
        (0x21, 0x21, body(&mapped, 36), header("192.0.2.7", 52)),
        // Nobody is told, or nobody whom HTTP could come from.
        (0x21, 0x00, body(&[], 0), header("", 16)),
        (0x21, 0x00, body(&[], 9), header("", 25)),
        (0x21, 0x12, body(&v4, 12), header("", 28)),
        (0x21, 0x31, body(&[], 216), header("", 232)),
        // The balancer itself, whatever it writes.
        (0x20, 0x00, body(&[], 0), header("", 16)),
        (0x20, 0x11, body(&v4, 12), header("", 28)),
        (0x20, 0x11, body(&v4, 3), header("", 19)),
        (0x21, 0x11, body(&v4, 11), Malformed),
        (0x21, 0x21, body(&v6, 35), Malformed),
        (0x21, 0x31, body(&[], 215), Malformed),
        (0x21, 0x11, body(&v4, V2_MAX + 1), Malformed),
        (0x20, 0x00, body(&[], V2_MAX + 1), Malformed),
        (0x22, 0x11, body(&v4, 12), Malformed),
        (0x11, 0x11, body(&v4, 12), Malformed),
        (0x21, 0x13, body(&v4, 12), Malformed),
        (0x21, 0x41, body(&v4, 12), Malformed),
    ] {
        let bytes = [v2_of(command, family, &body), b"GET".to_vec()].concat();
        assert_eq!(parse(&bytes), want, "{command:x} {family:x} {}", body.len());
    }
    assert_eq!(parse(b"\r\n\r\nGET / HTTP/1.1\r\n"), NotOne, "empty lines before a request");
}

proptest! {
    /// However a header is cut into packets, it is none until it is whole, and what follows does not matter.
    #[test]
    fn a_part_of_a_header_is_incomplete(
        family in prop::sample::select(vec![0x00_u8, 0x11, 0x21, 0x31]),
        more in 0..300_usize,
        at in any::<prop::sample::Index>(),
    ) {
        for whole in [v2_of(0x21, family, &body(&[], 216 + more)), b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec()] {
            prop_assert_eq!(parse(&whole[..at.index(whole.len())]), Incomplete);
            let Header { length, .. } = parse(&[&*whole, b"GET"].concat()) else { panic!("no header") };
            prop_assert_eq!(length, whole.len());
        }
    }

    /// No bytes make it panic, claim more than there is, or wait for ever.
    #[test]
    fn nothing_is_believed_that_is_not_there(
        begin in prop::sample::select(vec![&b""[..], V1, V2]),
        mut rest in prop::collection::vec(any::<u8>(), 0..200),
        long in any::<bool>(),
    ) {
        if long {
            rest.resize(MAX, b'x');
        }
        let bytes = [begin, &rest].concat();
        match parse(&bytes) {
            Incomplete => prop_assert!(bytes.len() < MAX),
            Header { length, .. } => prop_assert!(length <= bytes.len() && length <= MAX),
            NotOne | Malformed => {}
        }
    }
}
