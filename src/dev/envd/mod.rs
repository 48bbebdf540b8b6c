//! envd as E2B's SDKs know it, inside each sandbox's agent: `rpc` is Connect, `process` a service and
//! `filesystem` services over it, `files` plain HTTP and the sandbox's file system, `children` whose exits are
//! whose, `user` who there is.

pub(crate) mod children;
pub(crate) mod files;
mod filesystem;
mod metrics;
mod process;
pub(crate) mod rpc;
pub(crate) mod user;

use std::{io, path::PathBuf, sync::Arc};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;

use self::{children::Children, files::Root, process::Processes};
use crate::{
    dev::agent::{
        Order,
        environment::{self, Environment},
    },
    types::Secret,
};

/// One sandbox's envd.
pub(crate) struct Envd {
    /// The sandbox's file system.
    pub(crate) folder: PathBuf,
    pub(crate) token: Secret,
    /// The same, as the root that programs and callers see.
    pub(crate) root: Arc<Root>,
    /// What every program is given.
    pub(crate) environment: Environment,
    pub(crate) children: Arc<Children>,
    processes: Processes,
    metrics: metrics::Last,
}

impl Envd {
    /// Fails when the sandbox's folder cannot be opened.
    pub(crate) fn new(order: &Order, children: Arc<Children>) -> io::Result<Self> {
        Ok(Self {
            folder: order.folder.clone(),
            token: Secret::new(&order.access_token),
            root: Arc::new(Root::new(&order.folder)?),
            environment: environment::of_sandbox(order),
            children,
            processes: Processes::default(),
            metrics: metrics::Last::default(),
        })
    }
}

/// All of envd's routes. Every one wants the token, except `/health`, and `/files`, which takes signed URLs,
/// too.
pub(crate) fn router(envd: Arc<Envd>) -> Router {
    let guarded = process::router()
        .merge(filesystem::router(envd.root.clone()))
        .route("/metrics", get(metrics::answer))
        .route("/envs", get(tell_environment))
        .fallback(async || refused(StatusCode::NOT_FOUND, "no such route"))
        .method_not_allowed_fallback(async || refused(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
        .layer(middleware::from_fn_with_state(envd.clone(), check_token));
    let files = files::router(envd.root.clone(), envd.token.clone());
    guarded.route("/health", get(async || StatusCode::NO_CONTENT)).with_state(envd).merge(files)
}

/// `X-Access-Token` as envd checks it.
pub(crate) async fn check_token(
    State(envd): State<Arc<Envd>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let shown = headers.get("x-access-token").map_or(&b""[..], |token| token.as_bytes());
    if envd.token.matches(shown) {
        return next.run(request).await;
    }
    let message = "unauthorized access, please provide a valid access token or method signing if supported";
    refused(StatusCode::UNAUTHORIZED, message)
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "code": status.as_u16(), "message": message }))).into_response()
}

async fn tell_environment(State(envd): State<Arc<Envd>>) -> Json<Environment> {
    Json(envd.environment.clone())
}
