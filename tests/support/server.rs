//! A well-behaved node.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{control_plane::Gate, listen};

/// An HTTP/1.1 server on a free port that answers as its handler says.
pub struct Server {
    pub address: SocketAddr,
    /// Connections accepted so far.
    pub connections: Arc<AtomicUsize>,
    /// Requests whose heads came so far.
    pub requests: Arc<AtomicUsize>,
    /// Those heads.
    pub seen: Arc<Mutex<Vec<http::request::Parts>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub async fn start<F>(handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send,
    {
        Self::on("127.0.0.1:0", handler)
    }

    /// The same on an address of one's own.
    pub fn on<F>(address: &str, handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send,
    {
        let listener = listen(address);
        let address = listener.local_addr().expect("an address");
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler = Arc::new(handler);
        let mut tasks = JoinSet::new();
        let (counted, asked, heads) = (connections.clone(), requests.clone(), seen.clone());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                counted.fetch_add(1, SeqCst);
                let (handler, asked, heads) = (handler.clone(), asked.clone(), heads.clone());
                open.spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        asked.fetch_add(1, SeqCst);
                        let (head, body) = request.into_parts();
                        heads.lock().expect("no panic").push(head.clone());
                        let answer = handler(Request::from_parts(head, body));
                        async { Ok::<_, std::convert::Infallible>(answer.await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        Self { address, connections, requests, seen, _tasks: tasks }
    }

    /// One that answers `/slow` when the gate opens, and everything else at once.
    pub async fn gated(gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::start(move |request| {
            let gate = gate.clone();
            async move {
                if request.uri().path() == "/slow" {
                    gate.opened().await;
                }
                answer(200, "hello")
            }
        })
        .await
    }

    pub fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// A plain answer.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(body.into())).expect("an answer")
}

/// A JSON answer.
pub fn json(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = answer(status, body.to_string());
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}
