//! A client that speaks HTTP/2 with the proxy, stream by stream.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use crate::support::{PATIENCE, wire::HOST};

pub(crate) struct Client {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// `POST /` with this content type.
pub(crate) fn post(content_type: &str) -> Request<()> {
    let request = Request::post(format!("http://{HOST}/")).header("content-type", content_type);
    request.body(()).expect("a request")
}

/// What gRPC is known by.
pub(crate) const GRPC: &str = "application/grpc";

impl Client {
    pub(crate) async fn connect(proxy: SocketAddr) -> Self {
        let socket = TcpStream::connect(proxy).await.expect("a connection");
        let (sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
        let driver = tokio::spawn(async move { drop(connection.await) });
        Self { sender, driver }
    }

    /// Sends the head.
    pub(crate) async fn send(&mut self, request: Request<()>, is_all: bool) -> (ResponseFuture, SendStream<Bytes>) {
        std::future::poll_fn(|cx| self.sender.poll_ready(cx)).await.expect("an open connection");
        self.sender.send_request(request, is_all).expect("a stream")
    }
}

/// The head of the answer.
pub(crate) async fn head(answer: ResponseFuture) -> Response<RecvStream> {
    timeout(PATIENCE, answer).await.expect("an answer in time").expect("an answer")
}

/// The body and its trailers; the error is how it broke off.
pub(crate) async fn body(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let whole = async {
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data?;
            let _ = body.flow_control().release_capacity(data.len());
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, body.trailers().await?))
    };
    timeout(PATIENCE, whole).await.expect("an end in time")
}
