//! The HTTP side, with the paths and bodies that the SDKs know.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{ConnectInfo, Path, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    callers::{self, Names},
    client::Client,
    contexts::{Context, Contexts},
};
use crate::{
    dev::{agent::environment::is_mark, variables::environment_fault},
    types::Secret,
};

const CODE_MAX: usize = 4 << 20;
const WISH_MAX: usize = 64 << 10;

#[derive(Clone)]
pub(super) struct Server {
    pub(super) contexts: Arc<Contexts>,
    pub(super) token: Secret,
    pub(super) names: Arc<Names>,
}

pub(super) fn router(server: Server) -> Router {
    Router::new()
        .route("/execute", post(execute))
        .route("/contexts", get(list).post(create))
        .route("/contexts/{id}", delete(remove))
        .route("/contexts/{id}/restart", post(restart))
        .fallback(async || Fault::new(StatusCode::NOT_FOUND, "no such route"))
        .method_not_allowed_fallback(async || Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
        .layer(middleware::from_fn_with_state(server.clone(), check))
        .route("/health", get(async || "healthy\n"))
        .layer(middleware::from_fn_with_state(server.clone(), callers::check))
        .with_state(server)
}

/// Code runs for those who know the access token. With calls about contexts SDKs send none, in Python and JavaScript
/// and in both generations (2.7 to 2.11): there only a wrong one is refused, and a bound is what the others meet. No
/// web page may make calls: a page's POST is JSON only if it has asked first, which nobody answers here.
async fn check(State(server): State<Server>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let right = match headers.get("x-access-token") {
        Some(shown) => server.token.matches(shown.as_bytes()),
        None => request.uri().path() != "/execute",
    };
    if !right {
        let text = "unauthorized access, please provide a valid access token in X-Access-Token";
        return Fault::new(StatusCode::UNAUTHORIZED, text).into_response();
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if request.method() == Method::POST && !is_json {
        let text = "Content-Type must be application/json";
        return Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response();
    }
    next.run(request).await
}

/// What is sent to be run.
#[derive(Deserialize)]
struct Execution {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

async fn execute(
    State(server): State<Server>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
) -> Result<Response, Fault> {
    let wanted: Execution = parse(request, CODE_MAX).await?;
    if wanted.context_id.is_some() && wanted.language.is_some() {
        return Err(Fault::new(StatusCode::BAD_REQUEST, "only one of context_id and language can be given"));
    }
    check_language(wanted.language.as_deref())?;
    let mut variables = wanted.env_vars.unwrap_or_default();
    if environment_fault(&variables).is_some() {
        let text = "env_vars holds a name or value that no environment can hold";
        return Err(Fault::new(StatusCode::BAD_REQUEST, text));
    }
    variables.retain(|name, _| !is_mark(name));
    let answers = server.contexts.execute(wanted.context_id.as_deref(), &wanted.code, &json!(variables))?;
    let answers = answers.to(client);
    let lines = stream::unfold(Some(answers), async |answers| {
        let mut answers = answers?;
        match answers.next().await {
            Ok(line) => Some((line?, Some(answers))),
            Err(lost) => Some((ending(&lost.to_string()), None)),
        }
    });
    let lines = lines.map(Ok::<_, Infallible>);
    let kind = HeaderValue::from_static("application/x-ndjson");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(lines)).into_response())
}

/// The last lines of an execution that has none, as the driver has them.
fn ending(why: &str) -> Bytes {
    let error = json!({ "type": "error", "name": "KernelError", "value": why, "traceback": "" });
    format!("{error}\n{}\n", json!({ "type": "end_of_execution" })).into()
}

/// A context that somebody wants.
#[derive(Default, Deserialize)]
struct Wish {
    cwd: Option<String>,
    language: Option<String>,
}

async fn create(State(server): State<Server>, request: Request) -> Result<Json<Context>, Fault> {
    let wish: Wish = parse(request, WISH_MAX).await?;
    check_language(wish.language.as_deref())?;
    server.contexts.create(wish.cwd.as_deref()).await.map(Json)
}

async fn list(State(server): State<Server>) -> Json<Vec<Context>> {
    Json(server.contexts.list())
}

async fn restart(State(server): State<Server>, Path(id): Path<String>) -> Result<StatusCode, Fault> {
    server.contexts.restart(&id).await.map(|()| StatusCode::NO_CONTENT)
}

async fn remove(State(server): State<Server>, Path(id): Path<String>) -> Result<StatusCode, Fault> {
    server.contexts.remove(&id).await.map(|()| StatusCode::NO_CONTENT)
}

async fn parse<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Fault> {
    let body = to_bytes(request.into_body(), limit).await.map_err(|error| {
        let text = format!("the body cannot be read (at most {limit} bytes): {error}");
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    })?;
    serde_json::from_slice(&body)
        .map_err(|error| Fault::new(StatusCode::BAD_REQUEST, format!("the body is not as it should be: {error}")))
}

fn check_language(language: Option<&str>) -> Result<(), Fault> {
    let name = language.unwrap_or_default().trim().to_ascii_lowercase();
    if ["", "python", "python3"].contains(&name.as_str()) {
        return Ok(());
    }
    // JavaScript's SDK shows what is said only with this status.
    Err(Fault::new(StatusCode::NOT_FOUND, "the playground's code interpreter speaks no other language than python"))
}

/// An error, told as E2B's interpreter does: SDKs show the text as it is.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        (self.status, self.text).into_response()
    }
}
