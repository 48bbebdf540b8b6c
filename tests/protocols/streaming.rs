//! Streams by order and not by clock: each byte is read at the far end before the next is written.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::{
    http2::by_hand,
    support::{
        PATIENCE, Raw,
        http2::{Http2, full, request},
        wire::{HOST, Node, get},
    },
};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n";

#[tokio::test]
async fn each_byte_of_an_answer_arrives_before_the_next_is_written() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let (mut client, mut upstream, _) = node.exchange(&proxy, get("/")).await;
    upstream.write(CHUNKED).await;
    client.head().await;
    for byte in b'a'..=b'z' {
        upstream.write(format!("1\r\n{}\r\n", char::from(byte))).await;
        assert_eq!(client.chunk().await.expect("a chunk"), [byte]);
    }
    drop((client, upstream));

    let client = Http2::connect(proxy.address).await;
    let (answer, mut upstream) = tokio::join!(client.begin(request("GET", "abc", "/", full(""))), async {
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(CHUNKED).await;
        upstream
    });
    let mut answer = answer.expect("an answer");
    for byte in b'a'..=b'z' {
        upstream.write(format!("1\r\n{}\r\n", char::from(byte))).await;
        let frame = timeout(PATIENCE, answer.body_mut().frame()).await.expect("a frame in time");
        assert_eq!(frame.expect("a frame").expect("no error").into_data().expect("data"), [byte][..]);
    }
}

#[tokio::test]
async fn each_byte_of_an_upload_arrives_before_the_next_is_written() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (mut client, mut upstream, _) = node.exchange(&proxy, head).await;
    for byte in b'a'..=b'z' {
        client.write(format!("1\r\n{}\r\n", char::from(byte))).await;
        assert_eq!(upstream.chunk().await.expect("a chunk"), [byte]);
    }
    drop((client, upstream));

    let client = Http2::connect(proxy.address).await;
    let (pieces, body) = by_hand();
    let mut asked = Box::pin(client.begin(request("POST", "abc", "/", body)));
    assert!(futures_util::poll!(&mut asked).is_pending());
    let mut upstream = node.accept().await;
    upstream.head().await;
    for byte in b'a'..=b'z' {
        pieces.send(Bytes::copy_from_slice(&[byte])).expect("a client");
        assert_eq!(upstream.chunk().await.expect("a chunk"), [byte]);
    }
}

#[tokio::test]
async fn an_answer_may_begin_and_go_on_while_the_upload_does() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    let (pieces, body) = by_hand();
    let (answer, mut upstream) = tokio::join!(client.begin(request("POST", "abc", "/", body)), async {
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(CHUNKED).await;
        upstream
    });
    let mut answer = answer.expect("an answer");
    for byte in b'a'..=b'z' {
        pieces.send(Bytes::copy_from_slice(&[byte])).expect("a client");
        let chunk = upstream.chunk().await.expect("a chunk");
        upstream.write(format!("1\r\n{}\r\n", char::from(chunk[0]))).await;
        let frame = timeout(PATIENCE, answer.body_mut().frame()).await.expect("a frame in time");
        assert_eq!(frame.expect("a frame").expect("no error").into_data().expect("data"), [byte][..]);
    }
    drop(pieces);
    assert_eq!(upstream.chunk().await, None);
}

#[tokio::test]
async fn a_tunnel_passes_each_byte_on_at_once() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let asked = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n");
    let (mut client, mut upstream, _) = node.exchange(&proxy, asked).await;
    upstream.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n").await;
    client.head().await;
    let pass = async |from: &mut Raw, to: &mut Raw, byte: u8| {
        from.write([byte]).await;
        assert_eq!(to.exactly(1).await, [byte]);
    };
    for byte in b'a'..=b'z' {
        pass(&mut client, &mut upstream, byte).await;
        pass(&mut upstream, &mut client, byte).await;
    }
}
