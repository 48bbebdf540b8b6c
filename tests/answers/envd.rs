//! An envd that says what the test says, over HTTP/1.1 or HTTP/2, and whose connection then ends as the test wants.

use bytes::Bytes;
use h2::{Reason, SendStream, server};
use socket2::SockRef;
use tokio::{
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::support::{
    PATIENCE, Raw,
    wire::{Head, Node},
};

/// How its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Fin,
    Rst,
    /// Only the stream, where there are streams.
    Stream,
}

/// The stream of answers to one request.
pub(crate) enum Envd {
    Http1(Raw),
    Http2 { stream: SendStream<Bytes>, connection: JoinHandle<()>, socket: TcpStream },
}

impl Envd {
    /// Takes one request, and begins to answer it with this content type.
    pub(crate) async fn accept(node: &Node, http2: bool, content_type: &str) -> Self {
        let mut raw = node.accept().await;
        if !http2 {
            let head = Head(raw.head().await);
            assert!(head.has("content-type"), "{head:?}");
            let begin = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            );
            raw.write(begin).await;
            return Self::Http1(raw);
        }
        // Another handle of the same socket, to end it with.
        let std = raw.0.into_std().expect("a socket");
        let socket = TcpStream::from_std(std.try_clone().expect("a handle")).expect("a socket");
        let raw = TcpStream::from_std(std).expect("a socket");
        let mut connection = server::handshake(raw).await.expect("HTTP/2");
        let (_, mut respond) =
            timeout(PATIENCE, connection.accept()).await.expect("a request in time").expect("one").expect("one");
        let answer = http::Response::builder().header("content-type", content_type).body(()).expect("an answer");
        let stream = respond.send_response(answer, false).expect("a stream");
        let connection = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        Self::Http2 { stream, connection, socket }
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        match self {
            Self::Http1(raw) => {
                let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
                raw.write(chunk).await;
            }
            Self::Http2 { stream, .. } => {
                stream.send_data(Bytes::copy_from_slice(bytes), false).expect("an open stream");
            }
        }
    }

    /// Ends well.
    pub(crate) async fn finish(self) {
        match self {
            Self::Http1(mut raw) => raw.write("0\r\n\r\n").await,
            Self::Http2 { mut stream, connection, .. } => {
                stream.send_data(Bytes::new(), true).expect("an open stream");
                // The proxy reads it before the connection ends.
                drop(tokio::spawn(connection));
            }
        }
    }

    /// What is left of it ends with what comes back.
    pub(crate) fn cut(self, how: Cut) -> JoinSet<()> {
        let mut left = JoinSet::new();
        match self {
            Self::Http1(raw) => raw.end(how == Cut::Rst),
            Self::Http2 { mut stream, connection, socket } => match how {
                Cut::Stream => {
                    stream.send_reset(Reason::INTERNAL_ERROR);
                    left.spawn(async move {
                        let _open = (socket, AbortOnDrop(connection));
                        std::future::pending::<()>().await;
                    });
                }
                Cut::Fin | Cut::Rst => {
                    if how == Cut::Rst {
                        SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO)).expect("linger");
                    }
                    // Its task has the other handle; what it has written is on its way.
                    connection.abort();
                    drop(tokio::spawn(async move {
                        let _ = connection.await;
                        drop(socket);
                    }));
                }
            },
        }
        left
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
