//! A request's head as HTTP/2 has it (RFC 9113 §8.3).

use http::{
    HeaderValue, Request, Uri, Version,
    header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::{KEEP_ALIVE, PROXY_CONNECTION};

/// A copy of an HTTP/1.1 head that is fit for its upstream: `:authority` instead of Host, and no field of a
/// connection (RFC 9113 §8.2.2), but `TE: trailers`. `None`: its Host is no authority.
pub(crate) fn http2(head: &Parts) -> Option<Parts> {
    let authority = Authority::try_from(head.headers.get(HOST)?.as_bytes()).ok()?;
    let mut target = http::uri::Parts::default();
    target.scheme = Some(Scheme::HTTP);
    target.authority = Some(authority);
    target.path_and_query = head.uri.path_and_query().cloned().or(Some(PathAndQuery::from_static("/")));
    let mut copy = Request::new(()).into_parts().0;
    copy.method = head.method.clone();
    copy.uri = Uri::from_parts(target).ok()?;
    copy.version = Version::HTTP_2;
    copy.headers = head.headers.clone();
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE, PROXY_CONNECTION] {
        copy.headers.remove(name);
    }
    // What is left of it by now.
    if let Some(te) = copy.headers.get_mut(TE) {
        *te = HeaderValue::from_static("trailers");
    }
    Some(copy)
}
