//! For probes, scrapers and operators: the health listener and the admin listener.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, Request, State},
    http::{HeaderValue, StatusCode, header::AUTHORIZATION},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Serialize;

pub(crate) use self::settings::Settings;
use crate::types::{SandboxId, Secret};

mod settings;

/// What these listeners show; the process provides it.
pub(crate) trait Insight: Send + Sync + 'static {
    /// What operators may see of one sandbox.
    type View: Serialize;
    /// Whether traffic should come here.
    fn ready(&self) -> bool;
    /// The Prometheus exposition.
    fn metrics(&self) -> String;
    /// `None`: nobody asked for it lately.
    fn sandbox(&self, id: &SandboxId) -> Option<Self::View>;
    /// Makes what is known of it stale. Whether anything was known.
    fn forget(&self, id: &SandboxId) -> bool;
}

/// Health, readiness and metrics: every other path is a health check too, as on E2B's health port.
pub(crate) fn health<I: Insight>(insight: Arc<I>) -> Router {
    Router::new()
        .route("/healthz/live", get(async || "alive\n"))
        .route("/healthz/ready", get(ready::<I>))
        .route("/metrics", get(metrics::<I>))
        .fallback(get(healthy::<I>))
        .with_state(insight)
}

/// Everything of [`health`], and what operators ask. With a token, every request must carry it.
pub(crate) fn admin<I: Insight, S: Settings>(insight: Arc<I>, settings: Arc<S>) -> Router {
    let router = Router::new()
        .route("/sandboxes/{id}", get(sandbox::<I>).delete(forget::<I>))
        .with_state(insight.clone())
        .merge(settings::pages(settings.clone()))
        .merge(health(insight));
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let allowed = settings.admin_token().is_none_or(|token| carries(&request, &token));
        async move { if allowed { next.run(request).await } else { unauthorized() } }
    }))
}

fn carries(request: &Request, token: &Secret) -> bool {
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    // The scheme's name is case-insensitive (RFC 9110 §11.1), the token is not.
    let (scheme, given) = given.split_at_checked(b"Bearer ".len()).unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"Bearer ") && token.matches(given.trim_ascii_start())
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")], "the admin token is missing or wrong\n")
        .into_response()
}

async fn healthy<I: Insight>(State(insight): State<Arc<I>>) -> Response {
    tell(insight.ready(), "healthy", "unhealthy")
}

async fn ready<I: Insight>(State(insight): State<Arc<I>>) -> Response {
    tell(insight.ready(), "ready\n", "not ready\n")
}

fn tell(ready: bool, yes: &'static str, no: &'static str) -> Response {
    if ready { yes.into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, no).into_response() }
}

async fn metrics<I: Insight>(State(insight): State<Arc<I>>) -> Response {
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], insight.metrics()).into_response()
}

async fn sandbox<I: Insight>(State(insight): State<Arc<I>>, Path(id): Path<String>) -> Response {
    match SandboxId::new(&id).and_then(|id| insight.sandbox(&id)) {
        Some(view) => Json(view).into_response(),
        None => unknown(),
    }
}

async fn forget<I: Insight>(State(insight): State<Arc<I>>, Path(id): Path<String>) -> Response {
    if SandboxId::new(&id).is_some_and(|id| insight.forget(&id)) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        unknown()
    }
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "nobody asked for this sandbox lately\n").into_response()
}
