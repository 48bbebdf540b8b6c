//! envd's routes that are for the node only. In direct mode this proxy is the node.

/// Whether a path means one of envd's internal routes, however it is spelled: percent-encoded, with
/// empty or dot segments, in other case, with a trailing slash.
pub(crate) fn is_internal(path: &str) -> bool {
    const INTERNAL: [&str; 7] = ["init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "upgrade"];
    const MAX_LAYERS: usize = 4;
    let mut decoded = path.as_bytes().to_vec();
    for layer in 0.. {
        let once = percent_decode(&decoded);
        if once == decoded {
            break;
        }
        // Nobody encodes that often but to hide something, and each layer costs a pass.
        if layer == MAX_LAYERS {
            return true;
        }
        decoded = once;
    }
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            // Path parameters (RFC 3986 §3.3) name no other route.
            _ => segments.push(segment.split(|byte| *byte == b';').next().unwrap_or_default()),
        }
    }
    matches!(segments[..], [only] if INTERNAL.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(only)))
}

fn percent_decode(bytes: &[u8]) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        match after {
            [high, low, ..] if byte == b'%' && hex(*high).is_some() && hex(*low).is_some() => {
                decoded.push(hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0));
                rest = &after[2..];
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::is_internal;

    #[test]
    fn however_it_is_spelled() {
        for path in [
            "/init",
            "/init/",
            "//init",
            "/./init",
            "/a/../init",
            "/%69nit",
            "/%2569nit",
            "/INIT",
            "/fsthaw",
            "/upgrade",
            "/%2e/freeze",
            "/a/%2e%2e/unfreeze",
            "/collapse;x=1",
            "/..%2ffsfreeze",
            "\\init",
        ] {
            assert!(is_internal(path), "{path}");
        }
        assert!(is_internal(&format!("/%{}69nit", "25".repeat(100_000))));
        for path in
            ["/", "/health", "/initial", "/files/init", "/init/x", "/%", "/%zz", "/filesystem.Filesystem/Stat", "*"]
        {
            assert!(!is_internal(path), "{path}");
        }
    }
}
