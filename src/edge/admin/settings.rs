//! The configuration that was read last, and what is logged: `GET /config`, and `/log` for a filter that ends by
//! itself.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Deserialize;

use super::refusal::Refused;
use crate::{config, telemetry::Verbosity, types::Secret};

/// The process's settings, as these pages know them.
pub(crate) trait Settings: Send + Sync + 'static {
    /// The effective configuration as TOML, secrets masked.
    fn effective(&self) -> String;
    /// What requests to the admin listener must carry now.
    fn admin_token(&self) -> Option<Secret>;
    /// What is logged.
    fn verbosity(&self) -> &Arc<Verbosity>;
}

/// A filter and a duration fit many times over.
const MAX_BODY: usize = 4096;
/// How long a filter is set that nobody gave a time.
const USUALLY: Duration = Duration::from_mins(15);
/// And the longest: whoever wants it for good writes it in the file.
const LONGEST: Duration = Duration::from_hours(24);

/// The pages.
pub(crate) fn pages<S: Settings>(settings: Arc<S>) -> Router {
    Router::new()
        .route("/config", get(effective::<S>))
        .route("/log", get(logged::<S>).put(log::<S>).delete(restore::<S>))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(settings)
}

async fn effective<S: Settings>(State(settings): State<Arc<S>>) -> Response {
    ([("content-type", "text/plain; charset=utf-8")], settings.effective()).into_response()
}

async fn logged<S: Settings>(State(settings): State<Arc<S>>) -> Response {
    Json(settings.verbosity().view()).into_response()
}

async fn restore<S: Settings>(State(settings): State<Arc<S>>) -> Response {
    Json(settings.verbosity().restore()).into_response()
}

/// The body of `PUT /log`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    filter: String,
    r#for: Option<String>,
}

async fn log<S: Settings>(
    State(settings): State<Arc<S>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let unreadable = |status| Refused::new(status, "invalid_body", format!("the body has to be {RIGHT}"));
    let body = body.map_err(|error| unreadable(error.status()))?;
    let Wish { filter, r#for } = serde_json::from_slice(&body).map_err(|_| unreadable(StatusCode::BAD_REQUEST))?;
    let time = r#for.map_or(Some(USUALLY), |text| config::duration(&text).ok());
    let time = time.filter(|time| (Duration::from_millis(1)..=LONGEST).contains(time));
    let time =
        time.ok_or_else(|| Refused::bad_parameter("for has to be such as \"1h30m\", from \"1ms\" to \"24h\""))?;
    let wrong = || Refused::bad_parameter("filter has to be such as \"info\" or \"info,client_proxy=debug\"");
    let filter = config::filter(&filter).map_err(|_| wrong())?;
    let view = settings.verbosity().set(&filter, time).map_err(|_| wrong())?;
    Ok(Json(view).into_response())
}

const RIGHT: &str = r#"such as {"filter": "client_proxy=debug", "for": "10m"}, at most 4096 bytes"#;
