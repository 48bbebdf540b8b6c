//! For programs.

use bytes::Bytes;
use serde::Serialize;

use super::Own;

/// The form of E2B's own errors (`sandboxId`, `message`, `code`: a number), and what else is known.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
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

pub(super) fn body(own: &Own<'_>) -> Bytes {
    written(&Body {
        sandbox_id: own.target.map(|(sandbox, _)| sandbox.as_str()),
        message: &own.message,
        code: own.meaning.status,
        error: own.meaning.word,
        reason: own.failure.reason(),
        port: own.target.map(|(_, port)| port.get()),
        retryable: own.meaning.retryable,
        request_id: own.request_id,
    })
}

pub(super) fn written(value: &impl Serialize) -> Bytes {
    // These have nothing in them that JSON has not.
    serde_json::to_vec(value).unwrap_or_default().into()
}
