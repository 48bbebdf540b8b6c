//! `Proxy-Status` (RFC 9209): only this proxy speaks for itself.

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// How this proxy names itself in `Proxy-Status` (RFC 9209 §2).
pub(crate) const OUR_NAME: &str = "client-proxy";

/// Removes the members in our name from `Proxy-Status`.
pub(super) fn strip_our_status(headers: &mut HeaderMap) {
    if !headers.contains_key(PROXY_STATUS) {
        return;
    }
    // All lines are one list (RFC 9110 §5.3): a string may begin in one and end in the next.
    let lines: Vec<&[u8]> = headers.get_all(PROXY_STATUS).iter().map(HeaderValue::as_bytes).collect();
    let list = lines.join(&b", "[..]);
    // Recipients ignore a malformed list (RFC 9651 §4.2), or guess: it goes.
    let members = members(&list).unwrap_or_default();
    let foreign: Vec<&[u8]> = members.iter().copied().filter(|member| !is_ours(member)).collect();
    if !foreign.is_empty() && foreign.len() == members.len() {
        return;
    }
    headers.remove(PROXY_STATUS);
    if !foreign.is_empty()
        && let Ok(left) = HeaderValue::from_bytes(&foreign.join(&b", "[..]))
    {
        headers.insert(PROXY_STATUS, left);
    }
}

/// The members of a structured field list (RFC 9651 §3.1): commas inside quoted strings do not count.
/// `None` where a string does not end.
fn members(value: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut members, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                members.push(value[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
    }
    members.push(value[start..].trim_ascii());
    members.retain(|member| !member.is_empty());
    (!quoted).then_some(members)
}

fn is_ours(member: &[u8]) -> bool {
    let name = member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let name = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
    name.eq_ignore_ascii_case(OUR_NAME.as_bytes())
}
