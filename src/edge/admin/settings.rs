//! What the process runs with, and what it logs: `GET /config`, and `/log` for a filter that ends by itself.

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
use serde_json::json;

use crate::{
    config::{self, Wrong},
    telemetry::Verbosity,
    types::Secret,
};

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
    filter: Option<String>,
    r#for: Option<String>,
}

async fn log<S: Settings>(State(settings): State<Arc<S>>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) => return refused(error.status(), Wrong::new(error.body_text(), EXAMPLE)),
    };
    let verbosity = settings.verbosity();
    let done = read(&body).and_then(|(filter, time)| match filter {
        Some(filter) => verbosity.set(&filter, time).map_err(|error| Wrong::new(error.to_string(), EXAMPLE)),
        None => Ok(verbosity.restore()),
    });
    done.map_or_else(|wrong| refused(StatusCode::BAD_REQUEST, wrong), |view| Json(view).into_response())
}

const EXAMPLE: &str = r#"write such as {"filter": "client_proxy=debug", "for": "10m"}"#;

/// The filter and its time; no filter: the configured one again.
fn read(body: &[u8]) -> Result<(Option<String>, Duration), Wrong> {
    let Wish { filter, r#for } =
        serde_json::from_slice(body).map_err(|error| Wrong::new(format!("the body: {error}"), EXAMPLE))?;
    let of = |key: &'static str| move |Wrong { wrong, remedy }: Wrong| Wrong::new(format!("{key}: {wrong}"), remedy);
    let time = r#for.map_or(Ok(USUALLY), |text| config::duration(&text)).map_err(of("for"))?;
    if time > LONGEST {
        return Err(Wrong::new("for: too long", "write at most \"24h\"; for good it belongs in log.filter"));
    }
    let filter = filter.map(|text| config::filter(&text)).transpose().map_err(of("filter"))?;
    match filter {
        _ if time.is_zero() => Ok((None, time)),
        None => Err(Wrong::new("filter is missing", EXAMPLE)),
        filter => Ok((filter, time)),
    }
}

fn refused(status: StatusCode, Wrong { wrong, remedy }: Wrong) -> Response {
    (status, Json(json!({ "error": wrong, "remedy": remedy }))).into_response()
}
