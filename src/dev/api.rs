//! The control API over HTTP: E2B's paths of both versions.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, Request, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderName, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    lifecycle::{Caller, Phase},
    sandbox::Sandbox,
    sandboxes::{CreateFault, Sandboxes},
    schema::{
        self, ApiError, NewSandbox, PauseBody, RefreshBody, TimeoutBody, parse, parse_optional, time_left, time_to_live,
    },
};
use crate::types::{Reason, Secret};

/// By this a proxy's wake is told from an owner's connect.
const WAKE: HeaderName = HeaderName::from_static("x-client-proxy-wake");
const BODY_LIMIT: usize = 64 * 1024;
const V1_TIMEOUT: Duration = Duration::from_secs(15);
const V2_TIMEOUT: Duration = Duration::from_secs(300);
const LONGEST_REFRESH: i64 = 3600;
const PAGE: usize = 100;

pub(crate) struct Api {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) key: Secret,
    /// Known when the proxy is bound.
    pub(crate) proxy: OnceLock<SocketAddr>,
}

impl Api {
    /// What SDKs build host names from; it leads to the proxy.
    fn domain(&self) -> Option<String> {
        self.proxy.get().map(|proxy| format!("localhost:{}", proxy.port()))
    }

    fn find(&self, id: &str) -> Result<Arc<Sandbox>, ApiError> {
        let found = self.sandboxes.get(id).map_err(|reason| ApiError::gone(id, reason))?;
        match found.snapshot().phase {
            Phase::Gone(reason) => Err(ApiError::gone(id, reason)),
            _ => Ok(found),
        }
    }
}

type Body = Result<Bytes, BytesRejection>;
type Answer = Result<Response, ApiError>;

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
        .route("/playground/sandboxes/{id}", get(inside))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "no_such_route", "no such route"))
        .method_not_allowed_fallback(async || {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            ApiError::new(status, "method_not_allowed", "this route has other methods")
        })
        .layer(middleware::from_fn_with_state(api.clone(), check_key))
        .route("/health", get(async || "healthy\n"))
        .layer(middleware::from_fn(check_host))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(api)
}

/// A web page can point a name of its own at this machine and then talk to the API as to its own server
/// (DNS rebinding); its name gives it away.
async fn check_host(uri: Uri, headers: HeaderMap, request: Request, next: Next) -> Response {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
    let good = host.is_some_and(is_local)
        && more.is_none()
        && uri.authority().is_none_or(|authority| is_local(authority.as_str()));
    if good {
        return next.run(request).await;
    }
    let text = "the playground answers to localhost and loopback addresses only";
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", text).into_response()
}

fn is_local(authority: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

async fn check_key(State(api): State<Arc<Api>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let shown = headers.get("x-api-key").map_or(&b""[..], |key| key.as_bytes());
    if api.key.matches(shown) {
        return next.run(request).await;
    }
    let text = "X-API-KEY is missing or wrong: the playground printed its key when it started";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", text).into_response()
}

fn bytes(body: Body) -> Result<Bytes, ApiError> {
    body.map_err(|error| ApiError {
        status: error.status(),
        word: None,
        message: format!("the body cannot be read (at most {BODY_LIMIT} bytes): {error}"),
    })
}

async fn create_v1(State(api): State<Arc<Api>>, body: Body) -> Answer {
    create(&api, body, V1_TIMEOUT).await
}

async fn create_v2(State(api): State<Arc<Api>>, body: Body) -> Answer {
    create(&api, body, V2_TIMEOUT).await
}

async fn create(api: &Api, body: Body, default: Duration) -> Answer {
    let wish = parse::<NewSandbox>(&bytes(body)?)?.into_wish(default)?;
    let sandboxes = api.sandboxes.clone();
    // A caller that leaves does not leave half a sandbox behind.
    let created = tokio::spawn(async move { sandboxes.create(wish).await });
    match created.await {
        Ok(Ok(sandbox)) => {
            let body = schema::created(&sandbox, api.domain().as_deref());
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

async fn detail(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Answer {
    let sandbox = api.find(&id)?;
    Ok(Json(schema::detail(&sandbox, api.domain().as_deref())).into_response())
}

async fn inside(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Answer {
    let sandbox = api.find(&id)?;
    let view = tokio::task::spawn_blocking(move || schema::inside(&sandbox)).await;
    Ok(Json(view.unwrap_or_default()).into_response())
}

async fn kill(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Answer {
    let end = api.find(&id)?.end(Reason::Killed).await;
    end.map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn pause(State(api): State<Arc<Api>>, Path(id): Path<String>, body: Body) -> Answer {
    let wanted: PauseBody = parse_optional(&bytes(body)?)?;
    let sandbox = api.find(&id)?;
    let paused = sandbox.pause(&api.sandboxes.ground, wanted.memory.unwrap_or(true));
    paused.await.map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn resume(State(api): State<Arc<Api>>, Path(id): Path<String>, body: Body) -> Answer {
    let wanted: TimeoutBody = parse_optional(&bytes(body)?)?;
    let timeout = time_to_live(wanted.timeout, V1_TIMEOUT)?;
    let sandbox = api.find(&id)?;
    let resumed = sandbox.resume(&api.sandboxes.ground, timeout);
    resumed.await.map_err(|fault| ApiError::of(&id, fault))?;
    let body = schema::created(&sandbox, api.domain().as_deref());
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

async fn connect(State(api): State<Arc<Api>>, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Answer {
    let wanted: TimeoutBody = parse_optional(&bytes(body)?)?;
    let timeout = time_to_live(wanted.timeout, V2_TIMEOUT)?;
    let caller =
        if headers.get(WAKE).is_some_and(|value| value == "1") { Caller::Traffic } else { Caller::Owner(timeout) };
    let sandbox = api.find(&id)?;
    let resumed = sandbox.connect(&api.sandboxes.ground, caller).await;
    let status = match resumed.map_err(|fault| ApiError::of(&id, fault))? {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let mut body = schema::created(&sandbox, api.domain().as_deref());
    body["nodeIP"] = json!(sandbox.snapshot().ip);
    Ok((status, Json(body)).into_response())
}

async fn set_timeout(State(api): State<Arc<Api>>, Path(id): Path<String>, body: Body) -> Answer {
    let wanted: TimeoutBody = parse(&bytes(body)?)?;
    let seconds = wanted.timeout.ok_or_else(|| ApiError::bad_request("timeout is missing"))?;
    let sandbox = api.find(&id)?;
    sandbox.set_timeout(time_left(seconds)?).map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn refresh(State(api): State<Arc<Api>>, Path(id): Path<String>, body: Body) -> Answer {
    let wanted: RefreshBody = parse_optional(&bytes(body)?)?;
    let seconds = wanted.duration.unwrap_or(15);
    if !(0..=LONGEST_REFRESH).contains(&seconds) {
        return Err(ApiError::bad_request("duration must be 0 to 3600 seconds"));
    }
    let sandbox = api.find(&id)?;
    sandbox.refresh(time_left(seconds)?).map_err(|fault| ApiError::of(&id, fault))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    metadata: Option<String>,
    state: Option<String>,
    template: Option<String>,
    order: Option<String>,
    limit: Option<String>,
    next_token: Option<String>,
}

async fn list_running(State(api): State<Arc<Api>>, Query(filter): Query<Filter>) -> Answer {
    let filter = Filter { state: Some("running".to_owned()), metadata: filter.metadata, ..Filter::default() };
    let (page, _) = filter.page(&api, usize::MAX)?;
    Ok(Json(page).into_response())
}

async fn list(State(api): State<Arc<Api>>, Query(filter): Query<Filter>) -> Answer {
    let limit = match filter.limit.as_deref().map(str::parse) {
        None => PAGE,
        Some(Ok(limit @ 1..=PAGE)) => limit,
        Some(_) => return Err(ApiError::bad_request("limit must be 1 to 100")),
    };
    let running = api.sandboxes.list().iter().filter(|one| one.snapshot().is_running()).count();
    let (page, next) = filter.page(&api, limit)?;
    let mut answer = Json(page).into_response();
    answer.headers_mut().insert("x-total-running", running.into());
    if let Some(next) = next {
        answer.headers_mut().insert("x-next-token", next.into());
    }
    Ok(answer)
}

impl Filter {
    /// One page, and the token of the next: the number of this page's last sandbox.
    fn page(&self, api: &Api, limit: usize) -> Result<(Vec<Value>, Option<u64>), ApiError> {
        let states: Vec<&str> = match self.state.as_deref().unwrap_or_default() {
            "" => vec!["running", "paused"],
            states => states.split(',').collect(),
        };
        if states.iter().any(|state| !["running", "paused"].contains(state)) {
            return Err(ApiError::bad_request("state may be running, paused, or both with a comma"));
        }
        let ascending = match self.order.as_deref() {
            None | Some("" | "desc") => false,
            Some("asc") => true,
            Some(_) => return Err(ApiError::bad_request("order may be asc or desc")),
        };
        let after: Option<u64> = match self.next_token.as_deref() {
            None | Some("") => None,
            Some(token) => {
                let token = token.parse().map_err(|_| ApiError::bad_request("no such nextToken"))?;
                Some(token)
            }
        };
        let wanted = self.metadata.as_deref().map(pairs).unwrap_or_default();
        let mut all = api.sandboxes.list();
        if ascending {
            all.reverse();
        }
        all.retain(|sandbox| {
            let (facts, now) = (&sandbox.facts, sandbox.snapshot());
            let state = if now.is_running() { "running" } else { "paused" };
            !matches!(now.phase, Phase::Gone(_))
                && states.contains(&state)
                && self.template.as_ref().is_none_or(|template| *template == facts.template)
                && wanted.iter().all(|(key, value)| facts.metadata.get(key) == Some(value))
                && after.is_none_or(|after| if ascending { facts.number > after } else { facts.number < after })
        });
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(|last| last.facts.number);
        Ok((all.iter().map(|sandbox| schema::listed(sandbox)).collect(), next))
    }
}

/// The value of the parameter is itself a query string: SDKs encode metadata twice.
fn pairs(query: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse("http://localhost/").map(|mut url| {
        url.set_query(Some(query));
        url
    });
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for good in ["localhost", "LOCALHOST:3000", "127.0.0.1:3000", "127.9.9.9", "[::1]:3000", "[::1]"] {
            assert!(is_local(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "127.0.0.1.evil.example:3000",
            "0.0.0.0",
            "[::]:80",
            "localhost:",
            "a@localhost",
        ] {
            assert!(!is_local(bad), "{bad}");
        }
    }

    #[test]
    fn metadata_is_decoded_once_more() {
        let want = vec![("k 1".to_owned(), "v%&".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(pairs("k%201=v%25%26&b="), want);
    }
}
