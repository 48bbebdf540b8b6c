//! envd as E2B's SDKs know it, inside each sandbox's agent: `rpc` is Connect, `process` a service over it,
//! `children` whose exits are whose.

pub(crate) mod children;
mod metrics;
mod process;
pub(crate) mod rpc;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;

use self::{children::Children, process::Processes};
use super::freeze;
use crate::{dev::agent::Order, types::Secret};

/// One sandbox's envd.
pub(crate) struct Envd {
    /// The sandbox's file system.
    pub(crate) folder: PathBuf,
    pub(crate) token: Secret,
    /// What every program is given: the sandbox's own marks, and what its creator wanted.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) children: Arc<Children>,
    processes: Processes,
    metrics: metrics::Last,
}

impl Envd {
    pub(crate) fn new(order: &Order, children: Arc<Children>) -> Self {
        let marks = [
            (freeze::MARK, order.id.clone()),
            ("E2B_SANDBOX", "true".to_owned()),
            ("E2B_SANDBOX_ID", order.id.clone()),
            ("SANDBOX_IP", order.ip.to_string()),
        ];
        let mut environment = order.environment.clone();
        environment.extend(marks.map(|(name, value)| (name.to_owned(), value)));
        Self {
            folder: order.folder.clone(),
            token: Secret::new(&order.access_token),
            environment,
            children,
            processes: Processes::default(),
            metrics: metrics::Last::default(),
        }
    }
}

/// All of envd's routes but those for files. Every one wants the token, except `/health`.
pub(crate) fn router(envd: Arc<Envd>) -> Router {
    let guarded = process::router()
        .route("/metrics", get(metrics::answer))
        .route("/envs", get(environment))
        .layer(middleware::from_fn_with_state(envd.clone(), check_token));
    guarded.route("/health", get(async || StatusCode::NO_CONTENT)).with_state(envd)
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
    let status = StatusCode::UNAUTHORIZED;
    let message = "unauthorized access, please provide a valid access token or method signing if supported";
    (status, Json(json!({ "code": status.as_u16(), "message": message }))).into_response()
}

async fn environment(State(envd): State<Arc<Envd>>) -> Json<BTreeMap<String, String>> {
    Json(envd.environment.clone())
}
