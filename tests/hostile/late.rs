//! Bodies that turn out malformed when their answer has begun: the request is aborted, and the answer broken off.

use crate::{
    frames::{DATA, END_HEADERS, Frames, HEADERS, PING, RST_STREAM, block, frame},
    rows::CHUNKED,
    support::wire::{HOST, Head, Node, OK, get},
};

const BEGUN: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";

#[tokio::test]
async fn a_chunk_that_is_none_ends_request_answer_and_connection() {
    for bad in ["x\r\n", "3\r\nabcd\r\n", "0\r\nno trailer\r\n\r\n", "ffffffffffffffffff\r\n"] {
        let node = Node::start().await;
        let proxy = node.proxy();
        let request = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{CHUNKED}\r\n3\r\nabc\r\n");
        let (mut client, mut upstream, _) = node.exchange(&proxy, request).await;
        assert_eq!(upstream.chunk().await.as_deref(), Some(&b"abc"[..]));
        upstream.write(BEGUN).await;
        assert_eq!(Head(client.head().await).status(), 200);
        assert_eq!(client.chunk().await.as_deref(), Some(&b"half"[..]));
        client.write(format!("{bad}{}", get("/hidden"))).await;
        let seen = upstream.rest().await.unwrap_or_default();
        assert!(!seen.ends_with(b"0\r\n\r\n") && !seen.windows(6).any(|six| six == b"hidden"), "{bad:?}: {seen:?}");
        let rest = client.rest().await.unwrap_or_default();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{bad:?}: {rest:?}");
        proxy.is_idle_upstream_too().await;
        assert!(node.nobody_knocks());
    }
}

#[tokio::test]
async fn data_beyond_the_length_end_request_and_stream_and_nothing_else() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Frames::connect(proxy.address).await;
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":authority", HOST), (":path", "/"), ("content-length", "5")];
    client.send(frame(HEADERS, END_HEADERS, 1, block(fields))).await;
    client.send(frame(DATA, 0, 1, "abc")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    assert_eq!(upstream.exactly(3).await, b"abc");
    upstream.write(BEGUN).await;
    while client.next().await.expect("an answer").kind != DATA {}
    client.send(frame(DATA, 0, 1, "defg")).await;
    while client.next().await.expect("a reset").kind != RST_STREAM {}
    assert_eq!(upstream.rest().await.unwrap_or_default(), b"");
    client.send(frame(PING, 0, 0, [7; 8])).await;
    client.pong().await;
    client.get(3, HOST, "/after").await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write(OK).await;
    assert_eq!(client.fate(3).await, crate::frames::Fate::Answer(200));
}
