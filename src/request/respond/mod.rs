//! From a failure to the answer that its caller can read.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS},
    uri::PathAndQuery,
};

use super::{
    caller::{Caller, Medium},
    code::{Code, Meaning},
    failure::Failure,
};
use crate::{
    forward::headers::{OUR_NAME, PROXY_STATUS, REQUEST_ID},
    types::{Port, SandboxId},
};

mod cors;
mod json;
mod page;
mod rpc;
#[cfg(test)]
mod tests;

pub(crate) use self::{cors::preflight, rpc::end_of_stream};

/// What is known of a request that is answered here.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    /// As far as it is known.
    pub(crate) target: Option<&'a (SandboxId, Port)>,
    pub(crate) request_id: &'a HeaderValue,
    pub(crate) caller: Option<&'a Caller>,
    /// How long a wake usually takes.
    pub(crate) usual_wake: Duration,
}

/// One of our own answers, before it has a form.
struct Own<'a> {
    failure: &'a Failure,
    meaning: Meaning,
    message: String,
    target: Option<&'a (SandboxId, Port)>,
    request_id: &'a str,
    /// Seconds.
    retry_after: Option<u64>,
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// A caller that comes back sooner or later is not worth more.
const LATEST: u64 = 300;

/// The answer to a request that failed.
pub(crate) fn respond(failure: &Failure, facts: Facts<'_>) -> Response<Bytes> {
    let own = Own {
        failure,
        meaning: failure.code().meaning(),
        message: failure.message(),
        target: facts.target,
        request_id: facts.request_id.to_str().unwrap_or_default(),
        retry_after: failure.retry_after(facts.usual_wake).map(jittered),
    };
    let mut answer = form(&own, facts.caller);
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REQUEST_ID, facts.request_id.clone());
    let details = match failure.reason() {
        Some(reason) => format!("{}; reason={reason}", own.meaning.word),
        None => own.meaning.word.into(),
    };
    let mut insert = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    insert(PROXY_STATUS, format!("{OUR_NAME}; error={}; details=\"{details}\"", own.meaning.proxy_error));
    if let Some(seconds) = own.retry_after {
        insert(RETRY_AFTER, seconds.to_string());
    }
    match failure.code() {
        // What follows a body without a certain end on its connection is anything.
        Code::Draining | Code::InvalidBody | Code::CodingNotSupported => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // RFC 9110 §15.5.6: what would be allowed. Any method but CONNECT is; what follows one is no HTTP.
        Code::MethodNotAllowed => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        }
        _ => {}
    }
    if let Some(caller) = facts.caller {
        cors::share(headers, caller);
    }
    answer
}

/// Status, body, and what tells how to read it.
fn form(own: &Own<'_>, caller: Option<&Caller>) -> Response<Bytes> {
    let status = StatusCode::from_u16(own.meaning.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let typed = |content_type: &'static str, body: Bytes| {
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        answer
    };
    match caller.map_or(&Medium::Json, |caller| &caller.medium) {
        Medium::Json => typed("application/json; charset=utf-8", json::body(own)),
        Medium::Text => typed("text/plain; charset=utf-8", text(own)),
        Medium::Connect => typed("application/json", rpc::connect(own)),
        Medium::Html => {
            let host = caller.and_then(|caller| caller.host.as_deref()).unwrap_or_default();
            let path = caller.and_then(|caller| caller.path.as_ref()).map_or("/", PathAndQuery::as_str);
            let mut answer = typed("text/html; charset=utf-8", page::of(own, host, path));
            page::guard(answer.headers_mut());
            answer
        }
        Medium::ConnectStream(content_type) => rpc::connect_stream(own, content_type),
        Medium::Grpc(content_type) => rpc::grpc(own, content_type),
    }
}

fn text(own: &Own<'_>) -> Bytes {
    format!("{}: {}\nrequest id: {}\n", own.meaning.word, own.message, own.request_id).into()
}

/// Whole seconds, at least one; spread over half as long again, so that not all come back at once.
fn jittered(after: Duration) -> u64 {
    let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).clamp(1, LATEST);
    seconds + fastrand::u64(..=seconds.div_ceil(2))
}
