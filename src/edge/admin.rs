//! For probes, scrapers and operators: the health listener and the admin listener.
//!
//! A room's pages are a router of their own, which knows the room and nothing else; `app` brings them together. What
//! holds for all of them (the token, no caching, refusals in JSON) is done here.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, WWW_AUTHENTICATE},
    },
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};

use self::refusal::Refused;
pub(crate) use self::settings::Settings;
use crate::{
    route::{host_of, is_local},
    shutdown::Shutdown,
    telemetry::Metrics,
    types::Secret,
};

mod body;
pub(crate) mod certificates;
mod query;
mod refusal;
pub(crate) mod sandboxes;
pub(crate) mod settings;
pub(crate) mod wake;

/// What health and metrics are read from.
pub(crate) struct Vitals {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: Shutdown,
    /// The catalog has answered once.
    pub(crate) reached: Arc<AtomicBool>,
}

impl Vitals {
    /// Whether traffic should come here.
    fn ready(&self) -> bool {
        self.reached.load(Relaxed) && !self.shutdown.is_draining()
    }
}

/// Health, readiness and metrics: every other path is a health check too, as on E2B's health port.
pub(crate) fn health(vitals: Arc<Vitals>) -> Router {
    Router::new()
        .route("/healthz/live", get(async || "alive\n"))
        .route("/healthz/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(get(healthy))
        .with_state(vitals)
}

/// Everything of [`health`], and `pages`. With a token, every request must carry it.
pub(crate) fn admin<S: Settings>(vitals: Arc<Vitals>, pages: Router, settings: Arc<S>) -> Router {
    let router = health(vitals).merge(pages).layer(middleware::map_response(finish));
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let allowed = settings.admin_token().is_none_or(|token| carries(&request, &token));
        async move { if allowed { next.run(request).await } else { finish(unauthorized()).await } }
    }))
}

/// For a machine on which somebody browses: requests to other names than its own are refused. A web page could
/// make them, under a name of its own that leads here.
pub(crate) fn only_local(router: Router) -> Router {
    router.layer(middleware::from_fn(async |request: Request, next: Next| {
        let (head, body) = request.into_parts();
        if host_of(&head).is_ok_and(|host| is_local(host.as_bytes())) {
            return next.run(Request::from_parts(head, body)).await;
        }
        let text = "this listener answers to localhost and loopback addresses only";
        Refused::new(StatusCode::FORBIDDEN, "foreign_host", text).into_response()
    }))
}

fn carries(request: &Request, token: &Secret) -> bool {
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    // The scheme's name is case-insensitive (RFC 9110 §11.1), the token is not.
    let (scheme, given) = given.split_at_checked(b"Bearer ".len()).unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"Bearer ") && token.matches(given.trim_ascii_start())
}

fn unauthorized() -> Response {
    let refused = Refused::new(StatusCode::UNAUTHORIZED, "unauthorized", "the admin token is missing or wrong");
    ([(WWW_AUTHENTICATE, "Bearer")], refused).into_response()
}

/// What every answer of the admin listener has. The router knows which methods a path takes, and says no more.
async fn finish(mut answer: Response) -> Response {
    if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allow = answer.headers_mut().remove(ALLOW);
        let refused = Refused::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this path does not take the method: see Allow",
        );
        answer = refused.into_response();
        answer.headers_mut().extend(allow.map(|allow| (ALLOW, allow)));
    }
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

async fn healthy(State(vitals): State<Arc<Vitals>>) -> Response {
    tell(vitals.ready(), "healthy", "unhealthy")
}

async fn ready(State(vitals): State<Arc<Vitals>>) -> Response {
    tell(vitals.ready(), "ready\n", "not ready\n")
}

fn tell(ready: bool, yes: &'static str, no: &'static str) -> Response {
    if ready { yes.into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, no).into_response() }
}

async fn metrics(State(vitals): State<Arc<Vitals>>) -> Response {
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], vitals.metrics.render()).into_response()
}
