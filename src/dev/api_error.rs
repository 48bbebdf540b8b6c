//! What goes wrong at the control API, as it is told.

use axum::{
    Json,
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{lifecycle::Refusal, sandbox::Fault};
use crate::types::{Reason, SandboxId};

/// An answer that is an error: a whole number as `code` (SDKs fail on anything else), a message, and a
/// word for programs.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) word: Option<&'static str>,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, word: &'static str, message: impl Into<String>) -> Self {
        Self { status, word: Some(word), message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, word: None, message: message.into() }
    }

    pub(crate) fn gone(id: &str, reason: Reason) -> Self {
        // Whatever is no id was never one: it is not repeated.
        let name = SandboxId::new(id).map_or_else(String::new, |id| format!(" {id}"));
        let why = match reason {
            Reason::Unknown => "was not found",
            Reason::Killed => "was not found: it was killed, or its time was over",
            Reason::Expired => "was not found: its retention is over",
            // No state of a sandbox, but of a request to a proxy.
            Reason::NotWoken => "was not woken",
            Reason::AutoResumeOff => "is paused, and its owner did not allow traffic to resume it",
            Reason::FilesystemOnly => "is paused without its memory: only its owner's connect starts it again",
        };
        Self::new(StatusCode::NOT_FOUND, reason.as_str(), format!("Sandbox{name} {why}"))
    }

    pub(crate) fn of(id: &str, fault: Fault) -> Self {
        let conflict = |word, why| Self::new(StatusCode::CONFLICT, word, format!("Sandbox {id} {why}"));
        match fault {
            Fault::Refused(Refusal::Gone(reason) | Refusal::Barred(reason)) => Self::gone(id, reason),
            Fault::Refused(Refusal::AlreadyPaused) => conflict("already_paused", "is already paused"),
            Fault::Refused(Refusal::AlreadyRunning) => conflict("already_running", "is already running"),
            Fault::Refused(Refusal::Transitioning) => {
                conflict("transitioning", "is being paused or resumed: try again soon")
            }
            Fault::Refused(Refusal::NotRunning) => {
                Self::new(StatusCode::NOT_FOUND, "not_running", format!("Sandbox {id} is not running: it is paused"))
            }
            Fault::NotAllowListed => Self::new(
                StatusCode::FORBIDDEN,
                "not_allow_listed",
                "this account is not allow-listed for traffic wakes (the playground runs with --deny)",
            ),
            Fault::TeamLimit(limit) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "team_limit",
                format!(
                    "you have reached the maximum number of concurrent sandboxes ({limit}); pause or kill one first"
                ),
            ),
            Fault::Failed(text) => Self { status: StatusCode::INTERNAL_SERVER_ERROR, word: None, message: text },
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = json!({ "code": self.status.as_u16(), "message": self.message });
        if let Some(word) = self.word {
            body["error_code"] = json!(word);
        }
        let mut answer = (self.status, Json(body)).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            // Python's SDK would try three times more, and find nothing else.
            answer.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
        }
        answer
    }
}
