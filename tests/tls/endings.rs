//! The end of a connection is told by TLS itself where it is one, and never where an answer broke off.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    support::{
        Raw,
        wire::{HOST, Node, OK, get},
    },
    tls::{Authority, Stream, VERSIONS, ask, door, read_until, rest},
};

struct Stage {
    node: Node,
    proxy: crate::support::Proxy,
    authority: Authority,
}

impl Stage {
    async fn with(lines: &str) -> Self {
        let (node, authority) = (Node::start().await, Authority::with_one());
        let proxy = node.proxy_with(&format!("{lines}\n{}", authority.config(&["a"])));
        Self { node, proxy, authority }
    }

    /// A client of the one version that has sent this, and the node that got it.
    async fn sends(&self, version: usize, request: &str) -> (Stream, Raw) {
        let mut stream = self.authority.client(&[], &[VERSIONS[version]]).connect(door(&self.proxy)).await;
        stream.write_all(request.as_bytes()).await.expect("a peer that reads");
        stream.flush().await.expect("a peer that reads");
        let mut upstream = self.node.accept().await;
        upstream.head().await;
        (stream, upstream)
    }
}

#[tokio::test]
async fn an_orderly_end_is_told() {
    for version in [0, 1] {
        let stage = Stage::with("").await;
        let close = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let (mut stream, mut upstream) = stage.sends(version, &close).await;
        upstream.write(OK).await;
        assert!(rest(&mut stream).await.expect("told").ends_with(b"ok"));
        // A request that is none.
        let mut stream = stage.authority.http1().connect(door(&stage.proxy)).await;
        stream.write_all(b"nonsense\r\n\r\n").await.expect("a peer that reads");
        assert!(rest(&mut stream).await.expect("told").starts_with(b"HTTP/1.1 400"));
    }
}

#[tokio::test]
async fn a_connection_that_idles_too_long_is_ended_with_a_word() {
    let stage = Stage::with("server.idle_timeout = \"100ms\"").await;
    let (mut stream, mut upstream) = stage.sends(1, &get("/")).await;
    upstream.write(OK).await;
    assert!(rest(&mut stream).await.expect("told").ends_with(b"ok"));
}

#[tokio::test]
async fn a_drain_ends_idle_connections_with_a_word() {
    let stage = Stage::with("").await;
    let (mut stream, mut upstream) = stage.sends(1, &get("/")).await;
    upstream.write(OK).await;
    read_until(&mut stream, "ok").await;
    let mut two = stage.authority.client(&["h2"], &VERSIONS).connect(door(&stage.proxy)).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    two.write_all(&preface).await.expect("a peer that reads");
    stage.proxy.metric_becomes("client_proxy_connections{protocol=\"http2\"}", 1.0).await;
    // The one by itself, the other when it is cut: it does not answer to GOAWAY.
    stage.proxy.app.drain().await;
    assert_eq!(rest(&mut stream).await.expect("told"), b"");
    rest(&mut two).await.expect("told");
}

#[tokio::test]
async fn an_answer_without_length_that_broke_off_does_not_look_whole() {
    let old = format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    for version in [0, 1] {
        let stage = Stage::with("").await;
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
        let (mut stream, mut upstream) = stage.sends(version, &old).await;
        upstream.write(chunked).await;
        read_until(&mut stream, "hello").await;
        drop(upstream);
        rest(&mut stream).await.expect_err("the end would pass for the answer's");
        // One that is whole looks so.
        let (mut stream, mut upstream) = stage.sends(version, &old).await;
        upstream.write(format!("{chunked}0\r\n\r\n")).await;
        assert!(rest(&mut stream).await.expect("told").ends_with(b"hello"));
    }
}

#[tokio::test]
async fn a_tunnel_runs_through_tls_and_each_side_ends_for_itself() {
    let stage = Stage::with("").await;
    let upgrade = format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let (mut stream, mut upstream) = stage.sends(1, &upgrade).await;
    upstream
        .write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nfirst",
        )
        .await;
    assert!(read_until(&mut stream, "first").await.starts_with("HTTP/1.1 101"));
    stream.write_all(b"to the sandbox").await.expect("a peer that reads");
    stream.shutdown().await.expect("a peer");
    assert_eq!(upstream.rest().await.expect("a clean end"), b"to the sandbox");
    upstream.write("and back").await;
    drop(upstream);
    assert_eq!(rest(&mut stream).await.expect("told"), b"and back");
}

#[tokio::test]
async fn a_body_streams_both_ways_whatever_its_size() {
    let stage = Stage::with("").await;
    let body = "x".repeat(3_000_000);
    let request = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n", body.len());
    let (stream, mut upstream) = stage.sends(1, &request).await;
    let (mut from, mut to) = tokio::io::split(stream);
    let sent = body.clone();
    let sending = tokio::spawn(async move {
        to.write_all(sent.as_bytes()).await.expect("a peer that reads");
        to.flush().await.expect("a peer that reads");
        to
    });
    assert_eq!(upstream.exactly(body.len()).await, body.as_bytes());
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let writing = tokio::spawn(async move {
        upstream.write(answer).await;
        upstream
    });
    let _to = sending.await.expect("no panic");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.expect("bytes"));
    }
    let mut back = vec![0; body.len()];
    from.read_exact(&mut back).await.expect("bytes");
    assert_eq!(back, body.as_bytes());
    writing.await.expect("no panic");
}

#[tokio::test]
async fn a_client_that_left_without_a_word_is_seen() {
    let stage = Stage::with("").await;
    let (stream, mut upstream) = stage.sends(1, &get("/")).await;
    drop(stream.into_inner().0);
    upstream.is_left().await;
    // Also while it is idle.
    let mut stream = stage.authority.http1().connect(door(&stage.proxy)).await;
    let asked = ask(&mut stream, "GET / HTTP/1.1\r\nHost: 1-nobody.example.test\r\n\r\n").await;
    assert!(asked.starts_with("HTTP/1.1 502"));
    drop(stream.into_inner().0);
    stage.proxy.is_idle().await;
}
