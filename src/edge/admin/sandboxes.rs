//! The pages about sandboxes: one of them, all of them, those with the most of something.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{FromRequestParts, Path, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::{query::Parameters, refusal::Refused};
use crate::{
    sandbox::{
        By, Phase, Resolver,
        ports::{Catalog, Resumer},
    },
    types::SandboxId,
};

const PAGE: usize = 100;
const TOP: usize = 20;

/// What these pages are read from.
struct Desk<C, R> {
    resolver: Arc<Resolver<C, R>>,
    /// A page that looks at every sandbox takes a core for a while: one at a time, whoever asks.
    walks: Arc<Semaphore>,
}

pub(crate) fn pages<C: Catalog, R: Resumer>(resolver: Arc<Resolver<C, R>>) -> Router {
    Router::new()
        .route("/sandboxes", get(page::<C, R>))
        .route("/sandboxes/{id}", get(one::<C, R>).delete(forget::<C, R>))
        .route("/top", get(top::<C, R>))
        .with_state(Arc::new(Desk { resolver, walks: Arc::new(Semaphore::new(1)) }))
}

async fn one<C: Catalog, R: Resumer>(State(desk): State<Arc<Desk<C, R>>>, Named(id): Named) -> Response {
    desk.resolver.view(&id).map_or_else(|| unknown().into_response(), |view| Json(view).into_response())
}

async fn forget<C: Catalog, R: Resumer>(State(desk): State<Arc<Desk<C, R>>>, Named(id): Named) -> Response {
    if desk.resolver.forget(&id) { StatusCode::NO_CONTENT.into_response() } else { unknown().into_response() }
}

fn unknown() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "unknown_sandbox", "nobody asked for this sandbox lately")
}

async fn page<C: Catalog, R: Resumer>(
    State(desk): State<Arc<Desk<C, R>>>,
    mut asked: Parameters,
) -> Result<Response, Refused> {
    let phase = asked.take("state", |word| word.parse().ok(), &one_of(Phase::ALL.map(Phase::as_str)))?;
    let after = asked.take("after", SandboxId::new, RIGHT_ID)?;
    let limit = asked.limit(PAGE)?;
    asked.finish("state, after, limit")?;
    let page = desk.walk(move |resolver| resolver.page(phase, after.as_ref(), limit)).await?;
    Ok(Json(page).into_response())
}

async fn top<C: Catalog, R: Resumer>(
    State(desk): State<Arc<Desk<C, R>>>,
    mut asked: Parameters,
) -> Result<Response, Refused> {
    let right = one_of(By::ALL.map(By::as_str));
    let by: Option<By> = asked.take("by", |word| word.parse().ok(), &right)?;
    let limit = asked.limit(TOP)?;
    asked.finish("by, limit")?;
    let by = by.ok_or_else(|| Refused::bad_parameter(format!("by has to be given: {right}")))?;
    let sandboxes = desk.walk(move |resolver| resolver.top(by, limit)).await?;
    Ok(Json(json!({ "by": by.as_str(), "sandboxes": sandboxes })).into_response())
}

fn one_of<const N: usize>(words: [&str; N]) -> String {
    format!("one of {}", words.join(", "))
}

impl<C: Catalog, R: Resumer> Desk<C, R> {
    /// Looks at every sandbox: beside the runtime, whose threads have lookups and wakes to carry.
    async fn walk<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Resolver<C, R>) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let failed = || Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the look at all sandboxes failed");
        // Whoever leaves meanwhile takes the turn along only when the look has ended.
        let turn = self.walks.clone().acquire_owned().await.map_err(|_| failed())?;
        let resolver = self.resolver.clone();
        let looked = spawn_blocking(move || {
            let _turn = turn;
            look(&resolver)
        });
        looked.await.map_err(|_| failed())
    }
}

const RIGHT_ID: &str = "a sandbox id: lowercase letters and digits, at most 63";

/// The sandbox that the path names.
struct Named(SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let path = Path::<String>::from_request_parts(parts, state).await.ok();
        let id = path.and_then(|Path(id)| SandboxId::new(&id));
        let wrong = || {
            let message = format!("the path has to name {RIGHT_ID}");
            Refused::new(StatusCode::BAD_REQUEST, "invalid_sandbox_id", message)
        };
        id.map(Self).ok_or_else(wrong)
    }
}
