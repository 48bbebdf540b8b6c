//! Who may call the control API.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{api::Api, api_error::ApiError};
use crate::route::{host_of, is_local};

/// Whoever calls it by a name of this machine or of its own domain: no web page under a name of its own.
pub(super) async fn check_host(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let is_api = |host: &str| api.domain.as_ref().is_some_and(|domain| domain.is_api(host));
    if host_of(&head).is_ok_and(|host| is_local(host.as_bytes()) || host.to_str().is_ok_and(is_api)) {
        return next.run(Request::from_parts(head, body)).await;
    }
    let text = "the playground answers to localhost, loopback addresses and its own domain (--tls) only";
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", text).into_response()
}

pub(super) async fn check_key(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let shown = headers.get("x-api-key").map_or(&b""[..], |key| key.as_bytes());
    if api.key.matches(shown) {
        return next.run(request).await;
    }
    let text = "X-API-KEY is missing or wrong: the playground printed its key when it started";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", text).into_response()
}
