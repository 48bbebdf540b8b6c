//! For callers of Connect, gRPC and gRPC-Web, who read errors in their own words.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

use super::{Own, json::written};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// An error of the Connect protocol; what it does not know, its clients do not look at.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Error<'a> {
    code: &'static str,
    message: &'a str,
    /// As in JSON.
    #[serde(rename = "error")]
    word: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

#[derive(Serialize)]
struct EndStream<'a> {
    error: Error<'a>,
}

impl<'a> From<&'a Own<'_>> for Error<'a> {
    fn from(own: &'a Own<'_>) -> Self {
        Self {
            code: own.meaning.connect,
            message: &own.message,
            word: own.meaning.word,
            reason: own.failure.reason(),
            request_id: Some(own.request_id),
        }
    }
}

/// Of a call with one answer.
pub(super) fn connect(own: &Own<'_>) -> Bytes {
    written(&Error::from(own))
}

/// Of a stream: its status is always 200, and its only message the last one.
pub(super) fn connect_stream(own: &Own<'_>, content_type: &HeaderValue) -> Response<Bytes> {
    let mut answer = Response::new(last_frame(own.into()));
    answer.headers_mut().insert(CONTENT_TYPE, content_type.clone());
    answer
}

/// The end of a stream whose sandbox is there no more: behind whole messages.
pub(crate) fn end_of_stream() -> Bytes {
    // Words that E2B's SDKs know: they do not ask `/health`, which would wake the sandbox that was just paused.
    let message = "The sandbox was not found running any more: it was paused or killed while this stream was open.";
    last_frame(Error { code: "unavailable", message, word: "sandbox_not_found", reason: None, request_id: None })
}

/// Flags (2: the end), length, and JSON, whatever the messages were in (the Connect protocol, "Error End-Stream").
fn last_frame(error: Error<'_>) -> Bytes {
    let end = written(&EndStream { error });
    let mut frame = BytesMut::with_capacity(5 + end.len());
    frame.put_u8(2);
    frame.put_u32(u32::try_from(end.len()).unwrap_or_default());
    frame.put(end);
    frame.freeze()
}

/// Trailers only (the specification "gRPC over HTTP2", `Trailers-Only`): status and words are in the head, which has no
/// body behind it.
pub(super) fn grpc(own: &Own<'_>, content_type: &HeaderValue) -> Response<Bytes> {
    // Printable ASCII but `%`.
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
    let mut answer = Response::new(Bytes::new());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, u16::from(own.meaning.grpc).into());
    if let Ok(message) = HeaderValue::try_from(utf8_percent_encode(&own.message, ENCODED).to_string()) {
        headers.insert(GRPC_MESSAGE, message);
    }
    answer
}
