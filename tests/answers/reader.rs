//! A client that reads a Connect stream of envd's to its end, and tells a clean end from a cut.

use std::net::SocketAddr;

use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use crate::{
    asking::Over,
    support::{PATIENCE, Raw},
};

pub(crate) const CONNECT: &str = "application/connect+proto";

/// A client that reads a stream to its end.
pub(crate) enum Client {
    Http1(Raw, Vec<u8>),
    Http2(h2::RecvStream, tokio::task::JoinHandle<()>),
}

/// What it has read, and whether that ended well.
pub(crate) type Read = (Vec<u8>, bool);

impl Client {
    /// `node` is played by `begin`, which must answer the request's head.
    pub(crate) async fn call<T>(proxy: SocketAddr, over: Over, port: u16, envd: impl Future<Output = T>) -> (Self, T) {
        match over {
            Over::Http1 => {
                let mut raw = Raw::connect(proxy).await;
                let head = format!(
                    "POST /process.Process/Start HTTP/1.1\r\nHost: {port}-abc.example.test\r\nConnection: close\r\n\
                     Content-Type: {CONNECT}\r\nContent-Length: 0\r\n\r\n"
                );
                raw.write(head).await;
                let begun = envd.await;
                let head = raw.head().await;
                assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("chunked"), "{head}");
                (Self::Http1(raw, Vec::new()), begun)
            }
            Over::Http2 => {
                let socket = TcpStream::connect(proxy).await.expect("a connection");
                let (mut sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
                let driver = tokio::spawn(async move { drop(connection.await) });
                let request = http::Request::post(format!("http://{port}-abc.example.test/process.Process/Start"));
                let request = request.header("content-type", CONNECT).body(()).expect("a request");
                let (answer, _) = sender.send_request(request, true).expect("a stream");
                let begun = envd.await;
                let answer = timeout(PATIENCE, answer).await.expect("an answer in time").expect("one");
                assert_eq!(answer.status(), 200);
                (Self::Http2(answer.into_body(), driver), begun)
            }
        }
    }

    /// Reads until so many bytes are there.
    pub(crate) async fn has(&mut self, count: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while read.len() < count {
            match self {
                Self::Http1(raw, _) => read.extend(raw.chunk().await.expect("more")),
                Self::Http2(body, _) => {
                    let data =
                        timeout(PATIENCE, body.data()).await.expect("bytes in time").expect("more").expect("more");
                    let _ = body.flow_control().release_capacity(data.len());
                    read.extend(data);
                }
            }
        }
        read
    }

    pub(crate) async fn rest(self) -> Read {
        match self {
            Self::Http1(mut raw, mut read) => {
                let to_end = async {
                    let mut part = vec![0; 65536];
                    while let Ok(count @ 1..) = raw.0.read(&mut part).await {
                        read.extend(&part[..count]);
                    }
                };
                timeout(PATIENCE, to_end).await.expect("an end in time");
                dechunked(&read)
            }
            Self::Http2(mut body, driver) => {
                let mut read = Vec::new();
                let ended = loop {
                    match timeout(PATIENCE, body.data()).await.expect("an end in time") {
                        Some(Ok(data)) => {
                            let _ = body.flow_control().release_capacity(data.len());
                            read.extend(data);
                        }
                        Some(Err(_)) => break false,
                        None => break true,
                    }
                };
                driver.abort();
                (read, ended)
            }
        }
    }
}

fn dechunked(mut read: &[u8]) -> Read {
    let mut body = Vec::new();
    loop {
        let Some(end) = read.windows(2).position(|two| two == b"\r\n") else { return (body, false) };
        let size = std::str::from_utf8(&read[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk: {size:?}"));
        read = &read[end + 2..];
        if size == 0 {
            assert_eq!(read, b"\r\n");
            return (body, true);
        }
        if read.len() < size + 2 {
            body.extend(read);
            return (body, false);
        }
        body.extend(&read[..size]);
        read = &read[size + 2..];
    }
}
