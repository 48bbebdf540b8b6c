//! What changes in a message's head on its way through: hop-by-hop fields go (RFC 9110 §7.6.1), the
//! forwarding fields are put right, and nothing else is touched.

use std::{fmt::Write as _, net::IpAddr};

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
    uri::PathAndQuery,
};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
pub(crate) const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
pub(crate) const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
pub(crate) const WAKE: HeaderName = HeaderName::from_static("x-sandbox-wake");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// How this proxy names itself in `Proxy-Status` (RFC 9209 §2).
pub(crate) const OUR_NAME: &str = "client-proxy";

/// What must be known of a request to put its head right.
pub(crate) struct Passage<'a> {
    /// The Host that was routed.
    pub(crate) host: HeaderValue,
    /// The Host that the client sent, where another one goes upstream.
    pub(crate) original_host: Option<HeaderValue>,
    /// The connection's peer.
    pub(crate) peer: IpAddr,
    /// Whether the peer's own forwarding fields are believed.
    pub(crate) trusted: bool,
    pub(crate) request_id: &'a HeaderValue,
    /// The last hop is ours, and so are the tokens that guard it.
    pub(crate) strip_traffic_token: bool,
}

/// Makes a request's head fit for the upstream.
pub(crate) fn outbound(head: &mut Parts, passage: Passage<'_>) {
    // Origin form, whatever the client sent (RFC 9112 §3.2.1).
    if head.uri.authority().is_some() {
        head.uri = origin_form(&head.uri);
    }
    head.version = http::Version::HTTP_11;
    // What hyper noted of the client's connection is not for the next one.
    head.extensions.clear();
    let headers = &mut head.headers;
    let takes_trailers = headers.get_all(TE).iter().any(|value| lists(value, "trailers"));
    one_framing(headers);
    strip_hop_by_hop(headers);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("TE"));
    }
    headers.insert(HOST, passage.host);
    if !passage.trusted {
        forget_forwarding(headers);
    }
    if let Some(original) = passage.original_host {
        headers.insert(FORWARDED_HOST, original);
    }
    append_peer(headers, passage.peer);
    headers.insert(REQUEST_ID, passage.request_id.clone());
    headers.remove(WAKE);
    if passage.strip_traffic_token {
        headers.remove(TRAFFIC_TOKEN);
    }
}

/// Path and query of an absolute target; an empty path is `/` (RFC 9112 §3.2.1).
fn origin_form(target: &Uri) -> Uri {
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    let rooted = if path.starts_with('/') { path.parse() } else { format!("/{path}").parse() };
    rooted.unwrap_or_else(|_| Uri::from_static("/"))
}

/// Makes a sandbox's answer fit for the client.
pub(crate) fn inbound(head: &mut http::response::Parts) {
    // Our own version, not the sandbox's (RFC 9110 §2.5).
    head.version = http::Version::HTTP_11;
    one_framing(&mut head.headers);
    strip_hop_by_hop(&mut head.headers);
    strip_our_status(&mut head.headers);
}

/// Makes the trailers of a sandbox's answer fit for the client: what may not be forged in a head may not
/// be forged behind the body either (RFC 9209 §2 allows `Proxy-Status` there).
pub(super) fn inbound_trailers(trailers: &mut HeaderMap) {
    strip_our_status(trailers);
}

/// Leaves one way to tell where the body ends (RFC 9112 §6.3). hyper has read it by its transfer coding
/// if it had one, and has checked that repeated lengths are equal.
fn one_framing(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
        return;
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    if lengths.next().is_none() && first.as_bytes().iter().all(u8::is_ascii_digit) {
        return;
    }
    let one = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    if let Ok(one) = HeaderValue::from_bytes(one) {
        headers.insert(CONTENT_LENGTH, one);
    }
}

/// Removes the fields that concern one connection only (RFC 9110 §7.6.1), and those that `Connection`
/// nominates.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let nominated: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .collect();
        for name in nominated {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

fn forget_forwarding(headers: &mut HeaderMap) {
    headers.remove(FORWARDED);
    headers.remove(REAL_IP);
    // Any `X-Forwarded-*`, also those nobody has thought of yet.
    let claimed = |name: &&HeaderName| name.as_str().starts_with("x-forwarded-");
    let claims: Vec<HeaderName> = headers.keys().filter(claimed).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

fn append_peer(headers: &mut HeaderMap, peer: IpAddr) {
    let mut chain = String::with_capacity(48);
    for value in headers.get_all(FORWARDED_FOR) {
        if let Ok(value) = value.to_str() {
            chain.push_str(value);
            chain.push_str(", ");
        }
    }
    let _ = write!(chain, "{peer}");
    if let Ok(value) = HeaderValue::try_from(chain) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Removes the members in our name from `Proxy-Status`: only this proxy speaks for itself.
fn strip_our_status(headers: &mut HeaderMap) {
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

fn lists(value: &HeaderValue, word: &str) -> bool {
    let is_word = |item: &[u8]| {
        let item = item.split(|byte| *byte == b';').next().unwrap_or_default();
        item.trim_ascii().eq_ignore_ascii_case(word.as_bytes())
    };
    value.as_bytes().split(|byte| *byte == b',').any(is_word)
}

/// The address that the client has as far as trusted peers tell: the right-most one in
/// `X-Forwarded-For` that is not a trusted proxy itself.
pub(crate) fn client_address(headers: &HeaderMap, peer: IpAddr, trusts: impl Fn(IpAddr) -> bool) -> IpAddr {
    if !trusts(peer) {
        return peer;
    }
    let mut client = peer;
    let hops = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = hops.flat_map(|value| value.split(',')).collect();
    for hop in hops.into_iter().rev() {
        let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !trusts(client) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri("/a?b");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn pass(lines: &[(&str, &str)], trusted: bool) -> HeaderMap {
        let mut head = head(lines);
        let request_id = HeaderValue::from_static("id");
        let passage = Passage {
            host: HeaderValue::from_static("8000-a.dom"),
            original_host: None,
            peer: IpAddr::from([192, 0, 2, 7]),
            trusted,
            request_id: &request_id,
            strip_traffic_token: true,
        };
        outbound(&mut head, passage);
        head.headers
    }

    fn all<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
    }

    #[test]
    fn hop_by_hop_fields_and_those_nominated_go() {
        let headers = pass(
            &[
                ("connection", "close, X-Private"),
                ("connection", "keep-alive , x-other"),
                ("x-private", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "keep-alive"),
                ("upgrade", "h2c"),
                ("te", "gzip"),
                ("x-kept", "1"),
                ("x-sandbox-wake", "never"),
                ("e2b-traffic-access-token", "t"),
            ],
            false,
        );
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "x-forwarded-for", "x-kept", "x-request-id"]);
    }

    #[test]
    fn trailers_stay_wanted() {
        let headers = pass(&[("te", "gzip;q=0.5, Trailers"), ("trailer", "x-sum")], false);
        assert_eq!((all(&headers, "te"), all(&headers, "connection")), (vec!["trailers"], vec!["TE"]));
        assert_eq!(all(&headers, "trailer"), ["x-sum"]);
    }

    #[test]
    fn a_body_read_by_its_transfer_coding_has_no_length() {
        let headers = pass(&[("transfer-encoding", "chunked"), ("content-length", "5")], false);
        assert!(!headers.contains_key("content-length") && !headers.contains_key("transfer-encoding"));
    }

    #[test]
    fn only_a_trusted_peer_may_speak_for_others() {
        let claims = [
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-for", "5.6.7.8"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-whatever", "x"),
            ("x-real-ip", "1.2.3.4"),
        ];
        let stranger = pass(&claims, false);
        assert_eq!(all(&stranger, "x-forwarded-for"), ["192.0.2.7"]);
        let left = ["forwarded", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-whatever", "x-real-ip"];
        assert!(left.iter().all(|name| !stranger.contains_key(*name)));
        let friend = pass(&claims, true);
        assert_eq!(all(&friend, "x-forwarded-for"), ["1.2.3.4, 5.6.7.8, 192.0.2.7"]);
        assert_eq!((all(&friend, "x-forwarded-proto"), all(&friend, "x-real-ip")), (vec!["https"], vec!["1.2.3.4"]));
    }

    #[test]
    fn an_absolute_target_goes_on_in_origin_form() {
        for (from, to) in
            [("http://a.b/c?d", "/c?d"), ("http://a.b", "/"), ("http://a.b?x", "/?x"), ("/", "/"), ("*", "*")]
        {
            let mut head = head(&[]);
            head.uri = from.parse().expect("a target");
            let request_id = HeaderValue::from_static("id");
            let host = HeaderValue::from_static("a.b");
            let peer = IpAddr::from([192, 0, 2, 7]);
            let passage = Passage {
                host,
                original_host: None,
                peer,
                trusted: false,
                request_id: &request_id,
                strip_traffic_token: false,
            };
            outbound(&mut head, passage);
            assert_eq!(head.uri.to_string(), to, "{from}");
        }
    }

    #[test]
    fn nobody_else_speaks_in_our_name() {
        for (value, want) in [
            ("client-proxy; error=x", vec![]),
            (
                "\"Client-Proxy\";error=x, nginx; details=\"a, client-proxy\"",
                vec!["nginx; details=\"a, client-proxy\""],
            ),
            ("a, b", vec!["a, b"]),
        ] {
            let mut head = http::Response::new(()).into_parts().0;
            head.headers.insert(PROXY_STATUS, HeaderValue::from_static(value));
            inbound(&mut head);
            assert_eq!(all(&head.headers, "proxy-status"), want, "{value}");
        }
    }

    #[test]
    fn the_client_is_the_last_hop_that_is_not_ours() {
        let ours = |ip: IpAddr| ip.to_string().starts_with("10.");
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 1.2.3.4, 10.0.0.9"));
        let from = |peer: [u8; 4]| client_address(&headers, IpAddr::from(peer), ours).to_string();
        assert_eq!((from([10, 0, 0, 1]), from([9, 9, 9, 9])), ("1.2.3.4".into(), "9.9.9.9".into()));
    }
}
