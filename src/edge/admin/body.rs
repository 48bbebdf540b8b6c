//! What operators send: a small JSON object, and in it how long it is to hold.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{DefaultBodyLimit, rejection::BytesRejection},
    http::StatusCode,
};
use serde::de::DeserializeOwned;

use super::refusal::Refused;
use crate::config;

/// A filter and a duration fit many times over.
const MAX_BODY: usize = 4096;
/// How long something holds that nobody gave a time.
const USUALLY: Duration = Duration::from_mins(15);
/// And the longest: what is for good stands in the file, or in a runbook.
const LONGEST: Duration = Duration::from_hours(24);

pub(super) fn bound() -> DefaultBodyLimit {
    DefaultBodyLimit::max(MAX_BODY)
}

/// `right`: such as it has to be.
pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, right: &str) -> Result<T, Refused> {
    let unreadable = |status| {
        Refused::new(status, "invalid_body", format!("the body has to be such as {right}, at most {MAX_BODY} bytes"))
    };
    let body = body.map_err(|error| unreadable(error.status()))?;
    serde_json::from_slice(&body).map_err(|_| unreadable(StatusCode::BAD_REQUEST))
}

/// The value of `for`.
pub(super) fn time(text: Option<&str>) -> Result<Duration, Refused> {
    let time = text.map_or(Some(USUALLY), |text| config::duration(text).ok());
    let time = time.filter(|time| (Duration::from_millis(1)..=LONGEST).contains(time));
    time.ok_or_else(|| Refused::bad_parameter("for has to be such as \"1h30m\", from \"1ms\" to \"24h\""))
}
