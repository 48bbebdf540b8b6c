//! Trailers, both ways and across protocols (RFC 9110 §6.5).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    client::{Client, GRPC, body, head, post},
    frames::{DATA, END_HEADERS, END_STREAM, HEADERS, OK, Peer},
    support::{
        Raw,
        wire::{HOST, Node},
    },
};

/// What must not follow a body.
const FORGED: [(&str, &str); 9] = [
    ("content-length", "1"),
    ("te", "trailers"),
    ("host", "other"),
    ("x-forwarded-for", "1.2.3.4"),
    ("x-access-token", "t"),
    ("e2b-traffic-access-token", "t"),
    ("forwarded", "for=1.2.3.4"),
    ("x-request-id", "other"),
    ("proxy-status", "client-proxy; error=forged"),
];

fn trailers() -> HeaderMap {
    let pairs = FORGED.into_iter().chain([("x-sum", "abc")]);
    pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

/// A header block of literals (RFC 7541 §6.2.2).
fn block(pairs: impl IntoIterator<Item = (&'static str, &'static str)>) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    pairs.into_iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The same as it stands behind a chunked body.
fn lines() -> String {
    let pairs = FORGED.into_iter().chain([("x-sum", "abc")]);
    pairs.fold(String::new(), |lines, (name, value)| lines + name + ": " + value + "\r\n")
}

/// As a client of HTTP/1.1 has to announce it (RFC 9110 §6.6.2).
fn chunked() -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {GRPC}\r\nTE: trailers\r\nTrailer: x-sum\r\n\
         Transfer-Encoding: chunked\r\n\r\n2\r\nup\r\n0\r\n{}\r\n",
        lines()
    )
}

fn only_the_sum(trailers: Option<HeaderMap>) {
    let trailers = trailers.expect("trailers");
    assert_eq!((trailers.len(), &trailers["x-sum"]), (1, &HeaderValue::from_static("abc")), "{trailers:?}");
}

/// An HTTP/2 server in the sandbox takes one request, whose trailers it returns, and answers with some.
async fn answered_by_http2(node: &Node) -> Option<HeaderMap> {
    let socket = node.accept().await.0;
    let mut connection = h2::server::handshake(socket).await.expect("HTTP/2");
    let (request, mut respond) = connection.accept().await.expect("a request").expect("one");
    let driver = tokio::spawn(async move { while connection.accept().await.is_some() {} });
    let (up, seen) = body(request.into_body()).await.expect("all of it");
    assert_eq!(up, b"up");
    let answer = http::Response::builder().header("trailer", "x-sum").body(()).expect("an answer");
    let mut stream = respond.send_response(answer, false).expect("a stream");
    stream.send_data(Bytes::from_static(b"down"), false).expect("a stream");
    stream.send_trailers(trailers()).expect("a stream");
    drop(driver);
    seen
}

#[tokio::test]
async fn from_http_2_to_http_2() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Client::connect(proxy.address).await;
    let (response, mut upload) = client.send(post(GRPC), false).await;
    upload.send_data(Bytes::from_static(b"up"), false).expect("a stream");
    upload.send_trailers(trailers()).expect("a stream");
    only_the_sum(answered_by_http2(&node).await);
    let (down, seen) = body(head(response).await.into_body()).await.expect("all of it");
    assert_eq!(down, b"down");
    only_the_sum(seen);
}

#[tokio::test]
async fn from_http_1_1_to_http_2() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    client.write(chunked()).await;
    only_the_sum(answered_by_http2(&node).await);
    let head = client.head().await;
    assert!(head.contains("\r\ntrailer: x-sum\r\n"), "{head}");
    assert_eq!(client.chunk().await.as_deref(), Some(&b"down"[..]));
    assert!(client.chunk().await.is_none());
    assert_eq!(client.head().await, "x-sum: abc\r\n\r\n");
}

#[tokio::test]
async fn a_client_of_http_1_1_gets_none_that_it_did_not_ask_for_or_that_were_not_announced() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    let asks = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {GRPC}\r\n");
    let mut upstream = None;
    for (asks, announced) in [(format!("{asks}\r\n"), true), (format!("{asks}TE: trailers\r\n\r\n"), false)] {
        client.write(asks).await;
        let upstream = match &mut upstream {
            Some(upstream) => upstream,
            first => first.insert(Peer::accept(&node).await),
        };
        let stream = upstream.headers().await;
        let announces = if announced { block([("trailer", "x-sum")]) } else { Vec::new() };
        upstream.write(HEADERS, END_HEADERS, stream, &[OK, &announces].concat()).await;
        upstream.write(DATA, 0, stream, b"down").await;
        upstream.write(HEADERS, END_HEADERS | END_STREAM, stream, &block([("x-sum", "abc")])).await;
        // It is read to its end, and that no trailers follow is checked there.
        assert_eq!(client.message().await.text(), "down");
    }
}

#[tokio::test]
async fn from_http_2_to_http_1_1() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"http1\"");
    let mut client = Client::connect(proxy.address).await;
    let mut request = post(GRPC);
    request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum, x-access-token, x-forwarded-for"));
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    let (response, mut upload) = client.send(request, false).await;
    upload.send_data(Bytes::from_static(b"up"), false).expect("a stream");
    upload.send_trailers(trailers()).expect("a stream");
    let mut upstream = node.accept().await;
    let seen = upstream.head().await;
    assert!(seen.contains("te: trailers\r\n") && seen.contains("transfer-encoding: chunked\r\n"), "{seen}");
    assert_eq!(upstream.chunk().await.as_deref(), Some(&b"up"[..]));
    assert!(upstream.chunk().await.is_none());
    assert_eq!(upstream.head().await, "x-sum: abc\r\n\r\n");
    let announced = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n4\r\ndown\r\n0\r\n";
    upstream.write(format!("{announced}{}\r\n", lines())).await;
    let (down, seen) = body(head(response).await.into_body()).await.expect("all of it");
    assert_eq!(down, b"down");
    only_the_sum(seen);
}

#[tokio::test]
async fn behind_an_answer_that_may_be_a_node_s_own() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"h2c\"");
    for message in ["The sandbox was not found", "something else"] {
        let mut client = Client::connect(proxy.address).await;
        let (response, _) = client.send(post(GRPC), true).await;
        let mut upstream = Peer::accept(&node).await;
        let stream = upstream.headers().await;
        let text = format!(r#"{{"sandboxId":"abc","message":"{message}","code":502}}"#);
        let length: &'static str = text.len().to_string().leak();
        let fields = [("content-type", "application/json; charset=utf-8"), ("content-length", length)];
        let head = [&[8, 3][..], b"502", &block(fields)].concat();
        upstream.write(HEADERS, END_HEADERS, stream, &head).await;
        upstream.write(DATA, 0, stream, text.as_bytes()).await;
        upstream.write(HEADERS, END_HEADERS | END_STREAM, stream, &block([("x-sum", "abc"), ("te", "trailers")])).await;
        let (seen, trailers) = body(self::head(response).await.into_body()).await.expect("all of it");
        assert_eq!(seen, text.as_bytes());
        only_the_sum(trailers);
        // So that the next one comes on another.
        upstream.socket.reset();
        proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
    }
}
