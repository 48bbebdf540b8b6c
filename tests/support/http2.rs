//! A client that speaks HTTP/2 on one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    body::{Body, Incoming},
    client::conn::http2::{SendRequest, handshake},
    ext::Protocol,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

use super::{Answer, PATIENCE};

/// What a request may carry.
pub type AnyBody = BoxBody<Bytes, std::io::Error>;

/// A body that is all there.
pub fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// One connection; its streams may be asked for at once.
#[derive(Clone)]
pub struct Http2 {
    pub sender: SendRequest<AnyBody>,
}

impl Http2 {
    /// By prior knowledge.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::connect_tracked(address).await.0
    }

    /// The same, with the task that ends when the connection does: with an error unless both sides agreed.
    pub async fn connect_tracked(address: SocketAddr) -> (Self, JoinHandle<Result<(), hyper::Error>>) {
        Self::over(TcpStream::connect(address).await.expect("a connection")).await
    }

    /// Over whatever it is.
    pub async fn over<T>(io: T) -> (Self, JoinHandle<Result<(), hyper::Error>>)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("HTTP/2");
        (Self { sender }, tokio::spawn(connection))
    }

    /// The head of the answer, and its body to come.
    pub async fn begin(&self, request: Request<AnyBody>) -> Result<Response<Incoming>, hyper::Error> {
        timeout(PATIENCE, self.sender.clone().send_request(request)).await.expect("an answer in time")
    }

    /// The whole answer.
    pub async fn send(&self, request: Request<AnyBody>) -> Answer {
        let answer = self.begin(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"));
        let (head, body) = answer.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.expect("a body in time").expect("a whole body");
        Answer { status: head.status, headers: head.headers, body: body.to_bytes() }
    }

    /// `GET path` for the sandbox's port 8000.
    pub async fn get(&self, sandbox: &str, path: &str) -> Answer {
        self.send(request("GET", sandbox, path, full(""))).await
    }
}

/// A request in the usual form for the sandbox's port 8000.
pub fn request<B: Body>(method: &str, sandbox: &str, path: &str, body: B) -> Request<B> {
    let uri = format!("http://8000-{sandbox}.example.test{path}");
    Request::builder().version(Version::HTTP_2).method(method).uri(uri).body(body).expect("a request")
}

/// An extended CONNECT (RFC 8441).
pub fn connect(protocol: &'static str, sandbox: &str, path: &str) -> Request<AnyBody> {
    let mut request = request("GET", sandbox, path, full(""));
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(Protocol::from_static(protocol));
    request
}
