//! A no of the admin pages.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

/// Told as JSON, in the form of the proxy's own errors. It repeats nothing of the request: a token may be in it.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    error: &'static str,
    message: String,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: &'static str, message: impl Into<String>) -> Self {
        Self { status, error, message: message.into() }
    }

    /// `right`: what would be.
    pub(super) fn bad_parameter(right: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", right)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self { status, error, message } = self;
        (status, Json(json!({ "code": status.as_u16(), "error": error, "message": message }))).into_response()
    }
}
