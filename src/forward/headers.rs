//! What changes in a message's head on its way through: hop-by-hop fields go (RFC 9110 §7.6.1), the
//! forwarding fields are put right, and nothing else is touched.

use std::{
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, Entry, FORWARDED, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
    uri::PathAndQuery,
};

mod coding;
mod http2;
mod marks;
mod proxy_status;
mod rpc;
#[cfg(test)]
mod tests;
mod trailers;
mod upgrade;

pub(crate) use self::{
    coding::{BadCoding, one_coding},
    http2::http2,
    marks::Marks,
    proxy_status::{OUR_NAME, PROXY_STATUS},
    rpc::Rpc,
    trailers::clean_trailers,
    upgrade::{Disagreement, UnknownProtocol, Upgrade},
};
use self::{marks::CLAIM, proxy_status::strip_our_status};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
pub(crate) const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
pub(crate) const WAKE: HeaderName = HeaderName::from_static("x-sandbox-wake");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The other end of a client connection, and what is known of it once for all its requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) ip: IpAddr,
    /// Whether its own forwarding fields are believed.
    pub(crate) trusted: bool,
    /// TLS ended here.
    secure: bool,
    /// Its address as `X-Forwarded-For` has it.
    text: HeaderValue,
}

impl Peer {
    pub(crate) fn new(ip: IpAddr, trusted: bool, secure: bool) -> Self {
        let text = HeaderValue::try_from(ip.to_string()).unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        Self { ip, trusted, secure, text }
    }
}

/// What must be known of a request to put its head right.
pub(crate) struct Passage<'a> {
    pub(crate) marks: Marks,
    /// The Host that was routed.
    pub(crate) host: HeaderValue,
    /// The Host that the client sent, where another one goes upstream.
    pub(crate) original_host: Option<HeaderValue>,
    pub(crate) peer: &'a Peer,
    pub(crate) request_id: &'a HeaderValue,
    /// The last hop is ours, and so are the tokens that guard it.
    pub(crate) strip_traffic_token: bool,
    /// Another protocol is asked for.
    pub(crate) upgrade: Option<&'a Upgrade>,
}

/// Makes a request's head fit for the upstream.
pub(crate) fn outbound(head: &mut Parts, passage: Passage<'_>) {
    // Origin form, whatever the client sent (RFC 9112 §3.2.1).
    if head.uri.authority().is_some() {
        head.uri = origin_form(&head.uri);
    }
    let version = std::mem::replace(&mut head.version, Version::HTTP_11);
    // What hyper noted of the client's connection is not for the next one.
    head.extensions.clear();
    let (headers, marks) = (&mut head.headers, passage.marks);
    if version == Version::HTTP_2 {
        one_cookie(headers);
    }
    let takes_trailers = marks.has(Marks::TE) && headers.get_all(TE).iter().any(|value| lists(value, "trailers"));
    // One growth at most for all that most are given, and to no more: it lasts as long as the request is held.
    let more = [version == Version::HTTP_2, passage.peer.secure, passage.original_host.is_some(), takes_trailers];
    headers.reserve(2 + more.into_iter().filter(|more| *more).count());
    one_framing(headers, marks);
    strip_hop_by_hop(headers, marks);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("TE"));
    }
    if let Some(upgrade) = passage.upgrade {
        upgrade.ask(headers);
    }
    headers.insert(HOST, passage.host);
    if marks.has(Marks::FORWARDING) && !passage.peer.trusted {
        forget_forwarding(headers);
    }
    if let Some(original) = passage.original_host {
        headers.insert(FORWARDED_HOST, original);
    }
    append_peer(headers, marks, passage.peer);
    if passage.peer.secure {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
    headers.insert(REQUEST_ID, passage.request_id.clone());
    if marks.has(Marks::WAKE) {
        headers.remove(WAKE);
    }
    if passage.strip_traffic_token && marks.has_token() {
        headers.remove(TRAFFIC_TOKEN);
    }
}

/// Path and query of an absolute target; an empty path is `/` (RFC 9112 §3.2.1).
fn origin_form(target: &Uri) -> Uri {
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    if path == "*" {
        // OPTIONS for the whole server (RFC 9110 §7.1).
        return Uri::from_static("*");
    }
    let rooted = if path.starts_with('/') { path.parse() } else { format!("/{path}").parse() };
    rooted.unwrap_or_else(|_| Uri::from_static("/"))
}

/// Makes a sandbox's answer fit for the client.
pub(crate) fn inbound(head: &mut http::response::Parts) {
    let marks = Marks::of(&head.headers);
    clean(head, marks);
}

fn clean(head: &mut http::response::Parts, marks: Marks) {
    // Our own version, not the sandbox's (RFC 9110 §2.5).
    head.version = Version::HTTP_11;
    one_framing(&mut head.headers, marks);
    strip_hop_by_hop(&mut head.headers, marks);
    if marks.has(Marks::PROXY_STATUS) {
        strip_our_status(&mut head.headers);
    }
}

/// Leaves one way to tell where the body ends (RFC 9112 §6.3). hyper has read it by its transfer coding
/// if it had one, and has checked that repeated lengths are equal.
fn one_framing(headers: &mut HeaderMap, marks: Marks) {
    if marks.has(Marks::CONTENT_LENGTH)
        && marks.has(Marks::TRANSFER_ENCODING)
        && headers.contains_key(TRANSFER_ENCODING)
    {
        headers.remove(CONTENT_LENGTH);
        return;
    }
    if !marks.has(Marks::ODD_LENGTH) {
        return;
    }
    let Some(first) = headers.get(CONTENT_LENGTH) else { return };
    let one = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    if let Some(one) = std::str::from_utf8(one).ok().and_then(|one| one.parse::<u64>().ok()) {
        headers.insert(CONTENT_LENGTH, one.into());
    }
}

/// Removes the fields that concern one connection only (RFC 9110 §7.6.1), and those that `Connection`
/// nominates.
fn strip_hop_by_hop(headers: &mut HeaderMap, marks: Marks) {
    if marks.has(Marks::CONNECTION)
        && let Entry::Occupied(connection) = headers.entry(CONNECTION)
    {
        let mut nominated = Vec::new();
        for value in connection.remove_entry_mult().1.filter(|value| !is_usual(value)) {
            let names = value.as_bytes().split(|byte| *byte == b',');
            nominated.extend(names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()));
        }
        for name in nominated {
            headers.remove(name);
        }
    }
    if marks.has(Marks::HOP_BY_HOP) {
        for name in [KEEP_ALIVE, PROXY_CONNECTION, UPGRADE] {
            headers.remove(name);
        }
    }
    if marks.has(Marks::TE) {
        headers.remove(TE);
    }
    if marks.has(Marks::TRANSFER_ENCODING) {
        headers.remove(TRANSFER_ENCODING);
    }
}

/// Whether `Connection` says what it nearly always says, which nominates nothing that is not removed anyway.
fn is_usual(value: &HeaderValue) -> bool {
    let value = value.as_bytes();
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

/// Over HTTP/2 cookies come one by one, for the compression; in HTTP/1.1 they are one field (RFC 9113 §8.2.3).
fn one_cookie(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(one) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, one);
    }
}

fn forget_forwarding(headers: &mut HeaderMap) {
    headers.remove(FORWARDED);
    headers.remove(REAL_IP);
    let claimed = |name: &&HeaderName| name.as_str().starts_with(CLAIM);
    let claims: Vec<HeaderName> = headers.keys().filter(claimed).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

fn append_peer(headers: &mut HeaderMap, marks: Marks, peer: &Peer) {
    if !marks.has(Marks::FORWARDING) || !headers.contains_key(FORWARDED_FOR) {
        headers.insert(FORWARDED_FOR, peer.text.clone());
        return;
    }
    let mut chain = String::with_capacity(48);
    for value in headers.get_all(FORWARDED_FOR) {
        if let Ok(value) = value.to_str() {
            chain.push_str(value);
            chain.push_str(", ");
        }
    }
    let _ = write!(chain, "{}", peer.ip);
    if let Ok(value) = HeaderValue::try_from(chain) {
        headers.insert(FORWARDED_FOR, value);
    }
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
pub(crate) fn client_address(headers: &HeaderMap, peer: &Peer, trusts: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = peer.ip;
    if !peer.trusted {
        return client;
    }
    let hops = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = hops.flat_map(|value| value.split(',')).collect();
    for hop in hops.into_iter().rev() {
        // Some write the port as well.
        let hop = hop.trim();
        let with_port = || hop.parse::<SocketAddr>().map(|address| address.ip());
        let Ok(address) = hop.parse::<IpAddr>().or_else(|_| with_port()) else { break };
        client = address.to_canonical();
        if !trusts(client) {
            break;
        }
    }
    client
}
