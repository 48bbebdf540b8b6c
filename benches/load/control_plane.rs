//! The control plane, as far as a proxy asks it: one sandbox that runs, and any number that sleep until they are
//! woken. A wake takes as long as the scenario says.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, spawn},
};

/// The sandbox that runs.
pub(crate) const RUNNING: &str = "bench";

type Sleepers = Arc<Mutex<HashMap<String, watch::Sender<bool>>>>;

/// The control plane; ends when dropped.
pub(crate) struct ControlPlane {
    pub(crate) address: SocketAddr,
    sleepers: Sleepers,
    server: AbortHandle,
}

/// A sandbox that sleeps until it is released.
pub(crate) struct Sleeper {
    pub(crate) id: String,
    awake: watch::Sender<bool>,
}

impl Sleeper {
    /// Lets the wake succeed that is under way.
    pub(crate) fn release(&self) {
        self.awake.send_replace(true);
    }
}

impl ControlPlane {
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let sleepers = Sleepers::default();
        let known = sleepers.clone();
        let server = spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let sleepers = known.clone();
                let service = service_fn(move |request| {
                    let sleepers = sleepers.clone();
                    async move { Ok::<_, Infallible>(answer(&request, &sleepers).await) }
                });
                // A proxy that ends leaves its connections: that is no error here.
                spawn(async move { drop(http1::Builder::new().serve_connection(TokioIo::new(socket), service).await) });
            }
        });
        Ok(Self { address, sleepers, server: server.abort_handle() })
    }

    /// One more sandbox that sleeps.
    pub(crate) fn sleeper(&self) -> Sleeper {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("sleeper{}", sleepers.len());
        let awake = watch::Sender::new(false);
        sleepers.insert(id.clone(), awake.clone());
        Sleeper { id, awake }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(request: &Request<Incoming>, sleepers: &Sleepers) -> Response<Full<Bytes>> {
    let mut path = request.uri().path().strip_prefix("/sandboxes/").unwrap_or_default().split('/');
    let (id, action) = (path.next().unwrap_or_default(), path.next());
    let sleeper = sleepers.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
    let awake = match (request.method(), action, sleeper) {
        (&Method::GET, None, None) if id == RUNNING => true,
        (&Method::GET, None, Some(sleeper)) => *sleeper.borrow(),
        // The sender is here: it is not closed before it says yes.
        (&Method::POST, Some("connect"), Some(sleeper)) => {
            sleeper.subscribe().wait_for(|awake| *awake).await.is_ok_and(|awake| *awake)
        }
        _ => return said(StatusCode::NOT_FOUND, &json!({ "code": 404, "message": "not found" })),
    };
    said(StatusCode::OK, &detail(id, awake))
}

fn detail(id: &str, awake: bool) -> Value {
    json!({
        "sandboxID": id,
        "templateID": "base",
        "state": if awake { "running" } else { "paused" },
        "nodeIP": "127.0.0.1",
        "startedAt": "2026-01-01T00:00:00Z",
        "lifecycle": { "autoResume": true, "onTimeout": "pause" },
    })
}

fn said(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.to_string().into()));
    *response.status_mut() = status;
    response
}
