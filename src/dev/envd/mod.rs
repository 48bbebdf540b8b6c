//! envd as E2B's SDKs know it, inside each sandbox's agent.

pub(crate) mod files;
mod filesystem;
#[allow(dead_code, unused_imports, reason = "services follow")]
pub(crate) mod rpc;

use std::{io, path::Path, sync::Arc};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use self::files::Root;
use crate::types::Secret;

/// All of it. Fails when the sandbox's folder cannot be opened.
pub(crate) fn router(folder: &Path, token: &Secret) -> io::Result<Router> {
    let files = file_side(Arc::new(Root::new(folder)?), token);
    Ok(files.route("/health", get(async || StatusCode::NO_CONTENT)))
}

/// `filesystem.Filesystem` behind the token, and `/files`, which has its own rules.
pub(crate) fn file_side(root: Arc<Root>, token: &Secret) -> Router {
    filesystem::router(root.clone())
        .fallback(async || refused(StatusCode::NOT_FOUND, "no such route"))
        .method_not_allowed_fallback(async || refused(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
        .layer(middleware::from_fn_with_state(token.clone(), check_token))
        .merge(files::router(root, token.clone()))
}

async fn check_token(State(token): State<Secret>, request: Request, next: Next) -> Response {
    let shown = request.headers().get("x-access-token").map_or(&b""[..], |token| token.as_bytes());
    if token.matches(shown) {
        return next.run(request).await;
    }
    let text = "unauthorized access, please provide a valid access token or method signing if supported";
    refused(StatusCode::UNAUTHORIZED, text)
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "code": status.as_u16(), "message": message }))).into_response()
}
