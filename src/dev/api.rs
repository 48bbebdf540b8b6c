//! The control API over HTTP: E2B's paths of both versions.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderName, StatusCode},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use futures_util::future::join_all;
use serde_json::json;

use super::{
    api_error::ApiError,
    callers::{check_host, check_key},
    domain::{self, Domain},
    heads::{Id, Names},
    lifecycle::{Caller, Phase},
    list::{list, list_running},
    metrics::{of_one, of_several},
    sandbox::Sandbox,
    sandboxes::{CreateFault, Sandboxes},
    schema::{self, NewSandbox, PauseBody, RefreshBody, TimeoutBody, parse, parse_optional, time_left, time_more},
};
use crate::types::{Reason, Secret};

/// By this a proxy's wake is told from an owner's connect.
const WAKE: HeaderName = HeaderName::from_static("x-client-proxy-wake");
const BODY_LIMIT: usize = 64 * 1024;
const V1_TIMEOUT: Duration = Duration::from_secs(15);
const V2_TIMEOUT: Duration = Duration::from_mins(5);
const LONGEST_REFRESH: i64 = 3600;

pub(crate) struct Api {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) key: Secret,
    /// Known when the proxy is bound.
    pub(crate) proxy: OnceLock<SocketAddr>,
    /// That of `--tls`.
    pub(crate) domain: Option<Domain>,
    /// Where it listens itself.
    pub(crate) address: SocketAddr,
}

impl Api {
    pub(super) async fn find(&self, id: &str) -> Result<Arc<Sandbox>, ApiError> {
        let found = self.sandboxes.get(id).map_err(|reason| ApiError::gone(id, reason))?;
        found.settled().await;
        match found.snapshot().phase {
            Phase::Gone(reason) => Err(ApiError::gone(id, reason)),
            _ => Ok(found),
        }
    }

    /// The newest first.
    pub(super) async fn all(&self) -> Vec<Arc<Sandbox>> {
        let all = self.sandboxes.list();
        join_all(all.iter().map(|sandbox| sandbox.settled())).await;
        all
    }
}

type Body = Result<Bytes, BytesRejection>;
pub(super) type Answer = Result<Response, ApiError>;

pub(crate) fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/sandboxes", get(list_running).post(create_v1))
        .route("/v2/sandboxes", get(list).post(create_v2))
        .route("/sandboxes/{id}", get(detail).delete(kill))
        .route("/sandboxes/{id}/pause", post(pause))
        .route("/sandboxes/{id}/resume", post(resume))
        .route("/sandboxes/{id}/connect", post(connect))
        .route("/v2/sandboxes/{id}/connect", post(connect))
        .route("/sandboxes/{id}/timeout", post(set_timeout))
        .route("/sandboxes/{id}/refreshes", post(refresh))
        .route("/sandboxes/metrics", get(of_several))
        .route("/sandboxes/{id}/metrics", get(of_one))
        .route("/sandboxes/{id}/snapshots", post(not_here))
        .route("/sandboxes/{id}/fork", post(not_here))
        .route("/sandboxes/{id}/network", put(not_here))
        .route("/playground/sandboxes/{id}", get(inside))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "no_such_route", "no such route"))
        .method_not_allowed_fallback(async || {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            ApiError::new(status, "method_not_allowed", "this route has other methods")
        })
        .layer(middleware::from_fn_with_state(api.clone(), check_key))
        .route("/health", get(async || "healthy\n"))
        .layer(middleware::from_fn_with_state(api.clone(), check_host))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(api)
}

fn bytes(body: Body) -> Result<Bytes, ApiError> {
    body.map_err(|error| ApiError {
        status: error.status(),
        word: None,
        message: format!("the body cannot be read (at most {BODY_LIMIT} bytes): {error}"),
    })
}

async fn create_v1(State(api): State<Arc<Api>>, names: Names, body: Body) -> Answer {
    create(&api, &names, body, V1_TIMEOUT).await
}

async fn create_v2(State(api): State<Arc<Api>>, names: Names, body: Body) -> Answer {
    create(&api, &names, body, V2_TIMEOUT).await
}

async fn create(api: &Api, names: &Names, body: Body, default: Duration) -> Answer {
    let wish = parse::<NewSandbox>(&bytes(body)?)?.into_wish(default)?;
    let sandboxes = api.sandboxes.clone();
    // A caller that leaves does not leave half a sandbox behind.
    let created = tokio::spawn(async move { sandboxes.create(wish).await });
    match created.await {
        Ok(Ok(sandbox)) => {
            let body = schema::created(&sandbox, names.domain());
            Ok((StatusCode::CREATED, Json(body)).into_response())
        }
        Ok(Err(CreateFault::Fault(fault))) => Err(ApiError::of("", fault)),
        Ok(Err(CreateFault::UnknownTemplate)) => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "template_not_found",
            format!(
                "no such template; there are: {} (more with --template NAME=COMMAND)",
                api.sandboxes.ground.template_names()
            ),
        )),
        Err(error) => {
            Err(ApiError { status: StatusCode::INTERNAL_SERVER_ERROR, word: None, message: error.to_string() })
        }
    }
}

async fn detail(State(api): State<Arc<Api>>, names: Names, Id(id): Id) -> Answer {
    if id == domain::API && api.domain.is_some() {
        return Ok(Json(Domain::record(api.address)).into_response());
    }
    let sandbox = api.find(&id).await?;
    Ok(Json(schema::detail(&sandbox, names.domain())).into_response())
}

async fn inside(State(api): State<Arc<Api>>, Id(id): Id) -> Answer {
    let sandbox = api.find(&id).await?;
    let view = tokio::task::spawn_blocking(move || schema::inside(&sandbox)).await;
    Ok(Json(view.unwrap_or_default()).into_response())
}

/// What a process tree cannot do.
async fn not_here() -> ApiError {
    let text = "the playground has no snapshots, forks and changes of the network";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", text)
}

async fn kill(State(api): State<Arc<Api>>, Id(id): Id) -> Answer {
    let end = api.find(&id).await?.end(Reason::Killed).await;
    end.map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn pause(State(api): State<Arc<Api>>, Id(id): Id, body: Body) -> Answer {
    let wanted: PauseBody = parse_optional(&bytes(body)?)?;
    let sandbox = api.find(&id).await?;
    let paused = sandbox.pause(&api.sandboxes.ground, wanted.memory.unwrap_or(true));
    paused.await.map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn resume(State(api): State<Arc<Api>>, names: Names, Id(id): Id, body: Body) -> Answer {
    let wanted: TimeoutBody = parse_optional(&bytes(body)?)?;
    let timeout = time_more(wanted.timeout, V1_TIMEOUT)?;
    let sandbox = api.find(&id).await?;
    let resumed = sandbox.resume(&api.sandboxes.ground, timeout, wanted.memory.unwrap_or(true));
    resumed.await.map_err(|fault| ApiError::of(&id, fault))?;
    let body = schema::created(&sandbox, names.domain());
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

async fn connect(State(api): State<Arc<Api>>, names: Names, Id(id): Id, headers: HeaderMap, body: Body) -> Answer {
    let wanted: TimeoutBody = parse_optional(&bytes(body)?)?;
    let timeout = time_more(wanted.timeout, V2_TIMEOUT)?;
    let caller =
        if headers.get(WAKE).is_some_and(|value| value == "1") { Caller::Traffic } else { Caller::Owner(timeout) };
    let sandbox = api.find(&id).await?;
    let connected = sandbox.connect(&api.sandboxes.ground, caller, wanted.memory.unwrap_or(true)).await;
    let resumed = connected.map_err(|fault| ApiError::of(&id, fault))?;
    let status = if resumed { StatusCode::CREATED } else { StatusCode::OK };
    let mut body = schema::created(&sandbox, names.domain());
    body["nodeIP"] = json!(sandbox.snapshot().ip);
    Ok((status, Json(body)).into_response())
}

async fn set_timeout(State(api): State<Arc<Api>>, Id(id): Id, body: Body) -> Answer {
    let wanted: TimeoutBody = parse(&bytes(body)?)?;
    let seconds = wanted.timeout.ok_or_else(|| ApiError::bad_request("timeout is missing"))?;
    let sandbox = api.find(&id).await?;
    sandbox.set_timeout(time_left(seconds)?).map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn refresh(State(api): State<Arc<Api>>, Id(id): Id, body: Body) -> Answer {
    let wanted: RefreshBody = parse_optional(&bytes(body)?)?;
    let seconds = wanted.duration.unwrap_or(15);
    if !(0..=LONGEST_REFRESH).contains(&seconds) {
        return Err(ApiError::bad_request("duration must be 0 to 3600 seconds"));
    }
    let sandbox = api.find(&id).await?;
    sandbox.refresh(time_left(seconds)?).map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
