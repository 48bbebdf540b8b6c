//! A node that speaks HTTP/2 by prior knowledge: thousands of requests on few connections.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use super::{answer, listen};

/// Says hello; ends when dropped.
pub struct Http2Node {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Http2Node {
    pub fn start() -> Self {
        let listener = listen("127.0.0.1:0");
        let address = listener.local_addr().expect("an address");
        let (requests, mut task) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let counted = requests.clone();
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let counted = counted.clone();
                let service = service_fn(move |_| {
                    counted.fetch_add(1, SeqCst);
                    async { Ok::<_, Infallible>(answer(200, "hello")) }
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                open.spawn(async move {
                    let _ = server.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { address, requests, _task: task }
    }

    /// How many have come.
    pub fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}
