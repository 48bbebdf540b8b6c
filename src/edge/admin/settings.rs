//! The configuration that was read last, and what is logged: `GET /config`, and `/log` for a filter that ends by
//! itself.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Deserialize;

use super::{body, refusal::Refused};
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

/// The pages.
pub(crate) fn pages<S: Settings>(settings: Arc<S>) -> Router {
    Router::new()
        .route("/config", get(effective::<S>))
        .route("/log", get(logged::<S>).put(log::<S>).delete(restore::<S>))
        .layer(body::bound())
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
    let Wish { filter, r#for } = body::read(body, RIGHT)?;
    let time = body::time(r#for.as_deref())?;
    let wrong = || Refused::bad_parameter("filter has to be such as \"info\" or \"info,client_proxy=debug\"");
    let filter = config::filter(&filter).map_err(|_| wrong())?;
    let view = settings.verbosity().set(&filter, time).map_err(|_| wrong())?;
    Ok(Json(view).into_response())
}

const RIGHT: &str = r#"{"filter": "client_proxy=debug", "for": "10m"}"#;
