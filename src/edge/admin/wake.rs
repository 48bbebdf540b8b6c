//! The emergency switch: `PUT /wake` keeps every sleeping sandbox asleep for a while.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;

use super::{body, refusal::Refused};
use crate::sandbox::{
    Resolver,
    ports::{Catalog, Resumer},
};

pub(crate) fn pages<C: Catalog, R: Resumer>(resolver: Arc<Resolver<C, R>>) -> Router {
    let switch = get(state::<C, R>).put(switch::<C, R>).delete(on::<C, R>);
    Router::new().route("/wake", switch).layer(body::bound()).with_state(resolver)
}

/// The body of `PUT /wake`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    enabled: bool,
    r#for: Option<String>,
}

async fn state<C: Catalog, R: Resumer>(State(resolver): State<Arc<Resolver<C, R>>>) -> Response {
    tell(resolver.suspended_for())
}

async fn on<C: Catalog, R: Resumer>(State(resolver): State<Arc<Resolver<C, R>>>) -> Response {
    resolver.suspend(None);
    tell(resolver.suspended_for())
}

async fn switch<C: Catalog, R: Resumer>(
    State(resolver): State<Arc<Resolver<C, R>>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let Wish { enabled, r#for } = body::read(body, RIGHT)?;
    if enabled && r#for.is_some() {
        return Err(Refused::bad_parameter("for goes with \"enabled\": false: waking is switched on for good"));
    }
    let time = if enabled { None } else { Some(body::time(r#for.as_deref())?) };
    resolver.suspend(time);
    Ok(tell(resolver.suspended_for()))
}

/// `until`: RFC 3339; null where waking is on.
fn tell(off_for: Option<Duration>) -> Response {
    let until = off_for.map(|left| humantime::format_rfc3339_seconds(SystemTime::now() + left).to_string());
    Json(json!({ "enabled": off_for.is_none(), "until": until })).into_response()
}

const RIGHT: &str = r#"{"enabled": false, "for": "15m"}"#;
