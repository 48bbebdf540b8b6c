//! A node's own "I do not have that sandbox". An application can say the same words, so this is a
//! reason to look, never a proof.

use std::time::Duration;

use http::{
    Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use tokio::time::timeout;

use super::Download;
use crate::types::SandboxId;

/// The node's answer is short.
const MAX: usize = 1024;
/// And comes in one piece: an application that promises it and stalls is passed on as it is.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(serde::Deserialize)]
struct NodeAnswer {
    #[serde(rename = "sandboxId")]
    sandbox_id: String,
    message: String,
}

/// Whether an answer's head is what a node's would be that does not have the sandbox.
pub(crate) fn may_say_not_found<B>(answer: &Response<B>) -> bool {
    let headers = answer.headers();
    let is = |name, want: &str| headers.get(name).is_some_and(|value| value == want);
    let length = || headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<usize>().ok();
    answer.status() == StatusCode::BAD_GATEWAY
        && is(CONTENT_TYPE, "application/json; charset=utf-8")
        && length().is_some_and(|length| length <= MAX)
}

/// Whether the answer, whose head [may be](may_say_not_found) one's, is exactly what a node says that does not
/// have `sandbox`. What was read of the body stays in it. An answer to HEAD has none: its head has to do, and HEAD
/// does no harm when it is repeated.
pub(crate) async fn says_not_found(answer: &mut Response<Box<Download>>, sandbox: &SandboxId, to_head: bool) -> bool {
    if to_head {
        return true;
    }
    let Ok(body) = timeout(PATIENCE, answer.body_mut().peek(MAX + 1)).await else { return false };
    serde_json::from_slice::<NodeAnswer>(body)
        .is_ok_and(|said| said.sandbox_id == sandbox.as_str() && said.message.contains("was not found"))
}
