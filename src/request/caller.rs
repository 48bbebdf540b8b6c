//! Who asks, as far as an answer of our own depends on it: what the caller can read, and which page it is a part of.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Version,
    header::{
        ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONNECTION, CONTENT_TYPE, HOST, ORIGIN,
        UPGRADE,
    },
    request::Parts,
    uri::PathAndQuery,
};
use hyper::ext::Protocol;

use crate::forward::headers::{Marks, Rpc};

#[cfg(test)]
mod tests;

/// What most requests do without.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) medium: Medium,
    /// The site of the page that asks (RFC 6454 §7), as it says.
    pub(crate) origin: Option<HeaderValue>,
    pub(crate) preflight: Option<Preflight>,
    /// The Host that it asked for; only where a page tells it.
    pub(crate) host: Option<String>,
    /// Path and query, as the page loads them again.
    pub(crate) path: Option<PathAndQuery>,
}

/// What a caller can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// By default: programs, and scripts of pages.
    Json,
    /// A person.
    Html,
    /// HTTP/1.0: a person's tool.
    Text,
    /// Connect, one answer.
    Connect,
    /// Connect, a stream of this content type.
    ConnectStream(HeaderValue),
    /// gRPC or gRPC-Web, of this content type.
    Grpc(HeaderValue),
}

/// What a browser asks before it lets a page ask (Fetch §4.8).
#[derive(Debug)]
pub(crate) struct Preflight {
    pub(crate) method: HeaderValue,
    pub(crate) headers: Option<HeaderValue>,
}

const CONNECT_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

impl Caller {
    /// `None`: somebody who reads JSON, and is no page.
    pub(crate) fn of(head: &Parts, marks: Marks) -> Option<Box<Self>> {
        let plain = marks.is_of_a_program() && head.version != Version::HTTP_10 && head.method != Method::CONNECT;
        if plain && !is_connect_get(head) {
            // Most are, and nothing is looked up.
            return None;
        }
        let medium = Medium::of(head, marks);
        let origin = marks.has_origin().then(|| head.headers.get(ORIGIN).cloned()).flatten();
        if medium == Medium::Json && origin.is_none() {
            return None;
        }
        let preflight = origin.as_ref().filter(|_| head.method == Method::OPTIONS).and_then(|_| {
            let method = head.headers.get(ACCESS_CONTROL_REQUEST_METHOD)?.clone();
            Some(Preflight { method, headers: head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned() })
        });
        let host = (medium == Medium::Html).then(|| host(head));
        let path = head.uri.path_and_query().filter(|_| medium == Medium::Html).cloned();
        Some(Box::new(Self { medium, origin, preflight, host, path }))
    }

    /// Whether a person looks at the answer, who may be told to wait by a page.
    pub(crate) fn navigates(&self, method: &Method) -> bool {
        self.medium == Medium::Html && matches!(*method, Method::GET | Method::HEAD)
    }
}

impl Medium {
    /// The table of decisions: the first line that fits.
    fn of(head: &Parts, marks: Marks) -> Self {
        let headers = &head.headers;
        if marks.is_rpc()
            && let Some(medium) = rpc(headers)
        {
            return medium;
        }
        if is_upgrade(head) {
            return Self::Json;
        }
        match Self::of_plain(head, marks) {
            Self::Json if is_connect_get(head) => Self::Connect,
            medium => medium,
        }
    }

    /// The rest of it: of what is neither a call nor an upgrade by its fields.
    fn of_plain(head: &Parts, marks: Marks) -> Self {
        let headers = &head.headers;
        let of_browser = marks.is_of_browser();
        if of_browser && headers.contains_key(REQUESTED_WITH) {
            return Self::Json;
        }
        if of_browser && let Some(mode) = headers.get(FETCH_MODE) {
            return if mode == "navigate" { Self::Html } else { Self::Json };
        }
        // Over plain HTTP browsers do not say what they fetch for; only a navigation asks for HTML.
        let accepts = |what: &str| headers.get_all(ACCEPT).iter().any(|value| lists(value, what));
        if accepts("application/json") {
            return Self::Json;
        }
        if of_browser && accepts("text/html") {
            return Self::Html;
        }
        if head.version == Version::HTTP_10 { Self::Text } else { Self::Json }
    }
}

fn rpc(headers: &HeaderMap) -> Option<Medium> {
    let content_type = headers.get(CONTENT_TYPE)?;
    match Rpc::named_by(content_type.as_bytes()) {
        Some(Rpc::Grpc | Rpc::GrpcWeb) => Some(Medium::Grpc(content_type.clone())),
        Some(Rpc::ConnectStream) => Some(Medium::ConnectStream(content_type.clone())),
        None => headers.contains_key(CONNECT_VERSION).then_some(Medium::Connect),
    }
}

/// A Connect call by GET, which needs no field, and may be opened by a person as well ("Connect Protocol Reference",
/// Unary-Get-Request). Without its version it could be anything.
fn is_connect_get(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && head.uri.query().is_some_and(|query| {
            let has = |begin: &str| query.split('&').any(|pair| pair.starts_with(begin));
            query.split('&').any(|pair| pair == "connect=v1") && has("encoding=") && has("message=")
        })
}

/// `h2c` is only another version of the same (RFC 9113 §3.1): whoever asks for it reads what all read.
fn is_upgrade(head: &Parts) -> bool {
    let http = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"h2c");
    // Without `Connection` the field is left over from another hop (RFC 9110 §7.8).
    let asked = || head.headers.get_all(CONNECTION).iter().any(|value| lists(value, "upgrade"));
    head.extensions.get::<Protocol>().is_some()
        || head.headers.get(UPGRADE).is_some_and(|value| !http(value) && asked())
}

/// Whether `Accept` names this type, and not with a weight of nothing (RFC 9110 §12.4.2).
fn lists(value: &HeaderValue, what: &str) -> bool {
    value.as_bytes().split(|byte| *byte == b',').any(|item| {
        let mut parts = item.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(what.as_bytes()));
        named && !parts.any(|part| matches!(part, b"q=0" | b"q=0." | b"q=0.0" | b"q=0.00" | b"q=0.000"))
    })
}

fn host(head: &Parts) -> String {
    let own = || head.headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let host = head.uri.authority().map(|authority| authority.as_str().to_owned()).or_else(own).unwrap_or_default();
    // A name has 253 bytes at most (RFC 1035 §2.3.4); what is longer is none.
    host.chars().take(260).collect()
}
