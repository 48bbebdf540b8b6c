//! An envd that says what the test says, over HTTP/1.1 or HTTP/2, and whose connection then ends as the test wants.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use h2::{Ping, PingPong, Reason, SendStream, server};
use socket2::SockRef;
use tokio::{
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::support::{
    PATIENCE, Raw, eventually,
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
    Http2 { stream: SendStream<Bytes>, pings: PingPong, connection: JoinHandle<()>, socket: TcpStream },
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
        let pings = connection.ping_pong().expect("the first call");
        let connection = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        Self::Http2 { stream, pings, connection, socket }
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

    /// Waits until the proxy has read all that was said: a reset must not overtake it there.
    pub(crate) async fn is_heard(&mut self) {
        match self {
            Self::Http1(raw) => {
                let (near, far) = (raw.0.local_addr(), raw.0.peer_addr());
                let (near, far) = (near.expect("an address"), far.expect("an address"));
                eventually("it is delivered", async || queues(near, far).is_some_and(|(unsent, _)| unsent == 0)).await;
                eventually("it is read", async || queues(far, near).is_some_and(|(_, unread)| unread == 0)).await;
            }
            Self::Http2 { pings, .. } => {
                // The first one may overtake what was said, the second cannot overtake the answer to the first.
                for _ in 0..2 {
                    timeout(PATIENCE, pings.ping(Ping::opaque())).await.expect("an answer in time").expect("one");
                }
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
            Self::Http2 { mut stream, connection, socket, .. } => match how {
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

/// What the system has of a socket of this machine, by its two ends: bytes that its peer has not acknowledged, and
/// bytes that nobody has read. `None`: it is read page by page, and may miss one while others come and go.
fn queues(local: SocketAddr, remote: SocketAddr) -> Option<(u64, u64)> {
    let end = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port()),
        IpAddr::V6(ip) => panic!("{ip}"),
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system's sockets");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ends = [end(local), end(remote)];
    let row = rows.into_iter().find(|row| row.len() > 4 && row[1..3] == ends)?;
    let (unsent, unread) = row[4].split_once(':').expect("two queues");
    let number = |hex| u64::from_str_radix(hex, 16).expect("a number");
    Some((number(unsent), number(unread)))
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
