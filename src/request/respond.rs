//! From a failure to the answer that its caller can read. One medium so far: JSON; others (HTML, Connect,
//! gRPC) will be chosen in `body`.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

use super::failure::{Code, Failure};
use crate::{
    forward::headers::{OUR_NAME, PROXY_STATUS, REQUEST_ID},
    types::{Port, SandboxId},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<&'a str>,
    message: &'a str,
    code: u16,
    error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    retryable: bool,
    request_id: &'a str,
}

/// Seconds; the caller may try again then.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// The answer to a request that failed. `target` as far as it is known.
pub(crate) fn respond(
    failure: &Failure,
    target: Option<&(SandboxId, Port)>,
    request_id: &HeaderValue,
) -> Response<Bytes> {
    let code = failure.code();
    let meaning = code.meaning();
    let reason = failure.reason();
    let body = body(failure, target, request_id);
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(meaning.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REQUEST_ID, request_id.clone());
    let details = match reason {
        Some(reason) => format!("{}; reason={reason}", meaning.word),
        None => meaning.word.into(),
    };
    let status = format!("{OUR_NAME}; error={}; details=\"{details}\"", meaning.proxy_error);
    if let Ok(status) = HeaderValue::try_from(status) {
        headers.insert(PROXY_STATUS, status);
    }
    if meaning.retryable {
        headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    match code {
        // What follows a body without a certain end on its connection is anything.
        Code::Draining | Code::InvalidBody | Code::CodingNotSupported => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // RFC 9110 §15.5.6: what would be allowed. Any method but CONNECT is; what follows one is no HTTP.
        Code::MethodNotAllowed => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            headers
                .insert(http::header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        }
        _ => {}
    }
    answer
}

fn body(failure: &Failure, target: Option<&(SandboxId, Port)>, request_id: &HeaderValue) -> Bytes {
    let meaning = failure.code().meaning();
    let message = failure.message();
    let json = Json {
        sandbox_id: target.map(|(sandbox, _)| sandbox.as_str()),
        message: &message,
        code: meaning.status,
        error: meaning.word,
        reason: failure.reason(),
        port: target.map(|(_, port)| port.get()),
        retryable: meaning.retryable,
        request_id: request_id.to_str().unwrap_or_default(),
    };
    serde_json::to_vec(&json).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{route::Misrouted, sandbox::Unresolved, types::Reason};

    fn answer(failure: &Failure) -> (http::response::Parts, serde_json::Value) {
        let target = (SandboxId::new("abc").expect("an id"), Port::ENVD);
        let (parts, body) = respond(failure, Some(&target), &HeaderValue::from_static("rid")).into_parts();
        (parts, serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn words_are_unique_and_statuses_fit_the_sdks() {
        let mut words: Vec<_> = Code::ALL.iter().map(|code| code.meaning().word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        // SDKs read 502 as "the sandbox is dead": only these may say so.
        let dead: Vec<_> = Code::ALL.iter().filter(|code| code.meaning().status == 502).collect();
        assert_eq!(dead, [&Code::SandboxNotFound, &Code::PortClosed, &Code::UpstreamFailed]);
    }

    #[test]
    fn the_words_that_sdks_look_for_are_there() {
        for reason in [Reason::Unknown, Reason::Killed, Reason::AutoResumeOff, Reason::FilesystemOnly, Reason::Expired]
        {
            let (_, body) = answer(&Unresolved::Gone(reason).into());
            assert!(body["message"].as_str().expect("a message").contains("was not found"));
            assert_eq!(body["reason"], reason.as_str());
        }
        let (_, body) = answer(&Failure::PortClosed(Port::ENVD));
        assert!(body["message"].as_str().expect("a message").contains("port is not open"));
        assert_eq!(body["port"], 49983);
    }

    #[test]
    fn a_sandbox_that_lives_elsewhere_is_not_dead_and_the_words_are_true() {
        for (failure, words) in [
            (Failure::Moved, "may have been processed"),
            (Unresolved::Restless.into(), "went to sleep again"),
            (Failure::NoNode, "cannot be reached"),
        ] {
            let (parts, body) = answer(&failure);
            assert_eq!((parts.status.as_u16(), &parts.headers["retry-after"]), (503, &RETRY_AFTER_SECONDS));
            assert_eq!((&body["error"], &body["retryable"]), (&"node_unavailable".into(), &true.into()));
            assert!(body["message"].as_str().expect("a message").contains(words), "{body}");
        }
    }

    #[test]
    fn an_answer_tells_codes_the_same_way_everywhere() {
        let (parts, body) = answer(&Unresolved::Gone(Reason::AutoResumeOff).into());
        assert_eq!(parts.status, 502);
        assert_eq!(
            parts.headers["proxy-status"],
            "client-proxy; error=destination_not_found; details=\"sandbox_not_found; reason=auto_resume_off\""
        );
        assert_eq!((&body["code"], &body["error"]), (&502.into(), &"sandbox_not_found".into()));
        assert_eq!((&body["sandboxId"], &body["requestId"]), (&"abc".into(), &"rid".into()));
        assert_eq!(
            (&parts.headers["cache-control"], body["retryable"].as_bool()),
            (&HeaderValue::from_static("no-store"), Some(false))
        );
        assert!(!parts.headers.contains_key("retry-after"));
        let (parts, body) = answer(&Unresolved::Unavailable.into());
        assert_eq!((parts.status.as_u16(), &parts.headers["retry-after"]), (503, &RETRY_AFTER_SECONDS));
        assert_eq!(body["retryable"], true);
        let (parts, _) = answer(&Failure::Draining);
        assert_eq!(parts.headers["connection"], "close");
        let (parts, body) = answer(&Failure::BadBody);
        assert_eq!((parts.status.as_u16(), &parts.headers["connection"]), (400, &HeaderValue::from_static("close")));
        assert_eq!((body["error"].as_str(), body["retryable"].as_bool()), (Some("invalid_body"), Some(false)));
        let (parts, body) = answer(&Misrouted::ConnectMethod.into());
        assert_eq!((parts.status.as_u16(), body["error"].as_str()), (405, Some("method_not_allowed")));
        assert!(parts.headers.contains_key("allow"));
    }
}
