//! For pages of other sites: our own answers are theirs to read (Fetch §3.2), and preflights to sleeping sandboxes are
//! answered here.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, VARY,
    },
};

use super::NO_STORE;
use crate::{
    forward::headers::{OUR_NAME, PROXY_STATUS, REQUEST_ID},
    request::caller::{Caller, Preflight},
};

/// Lets the page that asked read the answer. With cookies too: nothing in it depends on them.
pub(super) fn share(headers: &mut HeaderMap, caller: &Caller) {
    let Some(origin) = &caller.origin else { return };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    let exposed = "Proxy-Status, Retry-After, Server-Timing, X-Request-Id, grpc-status, grpc-message";
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
}

/// Lets the page send what it wants to send, once: whether its answer may be read is then for the sandbox to say.
/// Without cookies, because a sandbox that sleeps cannot say whose it trusts; and not to be kept, because it can when
/// it is awake.
pub(crate) fn preflight(origin: Option<&HeaderValue>, asked: &Preflight, request_id: &HeaderValue) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(REQUEST_ID, request_id.clone());
    if let Ok(status) = HeaderValue::try_from(format!("{OUR_NAME}; details=\"preflight\"")) {
        headers.insert(PROXY_STATUS, status);
    }
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, asked.method.clone());
    if let Some(names) = &asked.headers {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("0"));
    let varies = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers";
    headers.insert(VARY, HeaderValue::from_static(varies));
    answer
}
