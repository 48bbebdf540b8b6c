//! Bodies on their way through: at once, whole, and no more of them in memory than passes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::support::{
    PATIENCE, Proxy, Raw,
    binary::Binary,
    stands_still,
    wire::{HOST, Head, Node, OK, get, node_mode},
};

/// The proxy and the node behind it.
struct House {
    proxy: Proxy,
    node: Node,
}

/// Both ends of an exchange whose request head has arrived: client, node, and that head.
async fn exchange(request: &str) -> (House, Raw, Raw, Head) {
    let node = Node::start().await;
    let proxy = node.proxy();
    let (client, upstream, seen) = node.exchange(&proxy, request).await;
    (House { proxy, node }, client, upstream, seen)
}

fn post(framing: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

#[tokio::test]
async fn each_chunk_of_an_answer_arrives_before_the_next_is_sent() {
    let (house, mut client, mut upstream, _) = exchange(&get("/")).await;
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}\r\n")).await;
    let head = Head(client.head().await);
    assert_eq!((head.one("transfer-encoding"), head.has("content-length")), ("chunked", false));
    for byte in b'a'..=b'z' {
        upstream.write(format!("1\r\n{}\r\n", char::from(byte))).await;
        assert_eq!(client.chunk().await, Some(vec![byte]));
    }
    upstream.write("0\r\n\r\n").await;
    assert_eq!(client.read_until("\r\n\r\n").await, "0\r\n\r\n");
    drop(client);
    house.proxy.is_idle().await;
}

#[tokio::test]
async fn each_byte_of_an_answer_with_a_length_arrives_before_the_next_is_sent() {
    let (_house, mut client, mut upstream, _) = exchange(&get("/")).await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n").await;
    assert_eq!(Head(client.head().await).one("content-length"), "26");
    for byte in b'a'..=b'z' {
        upstream.write([byte]).await;
        assert_eq!(client.exactly(1).await, [byte]);
    }
    // The end is known: the next request needs no other connection.
    client.write(get("/next")).await;
    assert_eq!(Head(upstream.head().await).line(), "GET /next HTTP/1.1");
}

#[tokio::test]
async fn each_byte_of_an_answer_that_ends_with_its_connection_arrives_before_the_next_is_sent() {
    let (_house, mut client, mut upstream, _) = exchange(&get("/")).await;
    upstream.write("HTTP/1.1 200 OK\r\n\r\n").await;
    assert_eq!(Head(client.head().await).one("transfer-encoding"), "chunked");
    for byte in b'a'..=b'z' {
        upstream.write([byte]).await;
        assert_eq!(client.chunk().await, Some(vec![byte]));
    }
    drop(upstream);
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn each_chunk_of_a_request_arrives_before_the_next_is_sent() {
    let (_house, mut client, mut upstream, seen) = exchange(&post(CHUNKED)).await;
    assert_eq!((seen.one("transfer-encoding"), seen.has("content-length")), ("chunked", false));
    for byte in b'a'..=b'z' {
        client.write(format!("1\r\n{}\r\n", char::from(byte))).await;
        assert_eq!(upstream.chunk().await, Some(vec![byte]));
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(upstream.read_until("\r\n\r\n").await, "0\r\n\r\n");
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn each_byte_of_a_request_with_a_length_arrives_before_the_next_is_sent() {
    let (_house, mut client, mut upstream, seen) = exchange(&post("Content-Length: 26\r\n")).await;
    assert_eq!((seen.one("content-length"), seen.has("transfer-encoding")), ("26", false));
    for byte in b'a'..=b'z' {
        client.write([byte]).await;
        assert_eq!(upstream.exactly(1).await, [byte]);
    }
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn both_directions_stream_at_once() {
    let (_house, mut client, mut upstream, _) = exchange(&post(CHUNKED)).await;
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}\r\n")).await;
    client.head().await;
    for round in 0..100 {
        let said = format!("{round:04}");
        client.write(format!("4\r\n{said}\r\n")).await;
        let heard = upstream.chunk().await.expect("a chunk");
        upstream.write(format!("4\r\n{}\r\n", String::from_utf8_lossy(&heard))).await;
        assert_eq!(client.chunk().await, Some(said.into()));
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(upstream.read_until("\r\n\r\n").await, "0\r\n\r\n");
    upstream.write("0\r\n\r\n").await;
    assert_eq!(client.chunk().await, None);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let declared = format!("{CHUNKED}Trailer: X-Sum, X-More\r\nTE: trailers\r\n");
    let (house, mut client, mut upstream, seen) = exchange(&post(&declared)).await;
    assert_eq!((seen.one("trailer"), seen.one("te")), ("X-Sum, X-More", "trailers"));
    client.write("1\r\na\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n").await;
    assert_eq!(upstream.chunk().await, Some(b"a".into()));
    assert_eq!(upstream.chunk().await, None);
    let trailers = Head(format!("\r\n{}", upstream.head().await));
    assert_eq!((trailers.one("x-sum"), trailers.one("x-more")), ("1", "2"));

    let forged = "client-proxy; error=x";
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}Trailer: X-Sum, Proxy-Status\r\n\r\n1\r\nb\r\n")).await;
    upstream.write(format!("0\r\nX-Sum: 3\r\nProxy-Status: {forged}\r\nProxy-Status: other\r\n\r\n")).await;
    assert_eq!(Head(client.head().await).one("trailer"), "X-Sum, Proxy-Status");
    assert_eq!(client.chunk().await, Some(b"b".into()));
    assert_eq!(client.chunk().await, None);
    let trailers = Head(format!("\r\n{}", client.head().await));
    assert_eq!((trailers.one("x-sum"), trailers.one("proxy-status")), ("3", "other"));
    // Where such a body ends can be read in two ways: so the client's connection ends, and only that.
    client.is_left().await;
    let mut client = Raw::connect(house.proxy.address).await;
    client.write(get("/next")).await;
    assert_eq!(Head(upstream.head().await).line(), "GET /next HTTP/1.1", "the connection serves on");
}

#[tokio::test]
async fn trailers_that_nobody_asked_for_are_left_out_and_the_body_is_whole() {
    let (_house, mut client, mut upstream, _) = exchange(&get("/")).await;
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}Trailer: X-Sum\r\n\r\n1\r\nb\r\n0\r\nX-Sum: 3\r\n\r\n")).await;
    assert_eq!(client.message().await.text(), "b");
    client.write(get("/next")).await;
    assert_eq!(Head(upstream.head().await).line(), "GET /next HTTP/1.1");
}

#[tokio::test]
async fn empty_bodies_stay_empty() {
    let (_house, mut client, mut upstream, seen) = exchange(&post("Content-Length: 0\r\n")).await;
    assert_eq!((seen.one("content-length"), seen.has("transfer-encoding")), ("0", false));
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client.message().await.head.one("content-length"), "0");
    client.write(post(CHUNKED) + "0\r\n\r\n").await;
    assert_eq!(Head(upstream.head().await).one("transfer-encoding"), "chunked");
    assert_eq!(upstream.read_until("\r\n\r\n").await, "0\r\n\r\n");
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}\r\n0\r\n\r\n")).await;
    let answer = client.message().await;
    assert_eq!((answer.head.one("transfer-encoding"), answer.body), ("chunked", vec![]));
    for method in ["GET", "DELETE", "OPTIONS"] {
        client.write(format!("{method} / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        let seen = Head(upstream.head().await);
        assert!(!seen.has("content-length") && !seen.has("transfer-encoding"), "{seen:?}");
        upstream.write(OK).await;
        client.message().await;
    }
    // A GET may have one.
    client.write(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc")).await;
    assert_eq!(Head(upstream.head().await).one("content-length"), "3");
    assert_eq!(upstream.exactly(3).await, b"abc");
}

#[tokio::test]
async fn compressed_bodies_are_not_touched() {
    let packed: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: br;q=1, gzip\r\n\r\n");
    let (_house, mut client, mut upstream, seen) = exchange(&request).await;
    assert_eq!(seen.one("accept-encoding"), "br;q=1, gzip");
    upstream.write("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nVary: *\r\nContent-Length: 3000\r\n\r\n").await;
    upstream.write(&packed).await;
    let answer = client.message().await;
    assert_eq!((answer.head.one("content-encoding"), answer.head.one("vary")), ("gzip", "*"));
    assert_eq!(answer.body, packed);
    // Nor is anything packed that was not.
    client.write(&request).await;
    upstream.head().await;
    upstream
        .write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9000\r\n\r\n{:9000}", ""))
        .await;
    let answer = client.message().await;
    assert_eq!((answer.head.has("content-encoding"), answer.body.len()), (false, 9000));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_ended_well() {
    for (framing, part) in [
        ("Content-Length: 9\r\n", "half"),
        ("Content-Length: 9\r\n", ""),
        (CHUNKED, "4\r\nhalf\r\n"),
        (CHUNKED, "9\r\nhalf"),
        (CHUNKED, ""),
        (CHUNKED, "4\r\nhalf\r\n0\r\n"),
        (CHUNKED, "4\r\nhalf\r\nnonsense\r\n"),
    ] {
        for reset in [false, true] {
            let (house, mut client, mut upstream, _) = exchange(&get("/")).await;
            upstream.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n{part}")).await;
            client.head().await;
            if part.starts_with('4') {
                assert_eq!(client.chunk().await.as_deref(), Some(&b"half"[..]));
            } else if part.ends_with("half") {
                let start = if framing == CHUNKED { "4\r\nhalf" } else { "half" };
                assert_eq!(client.exactly(start.len()).await, start.as_bytes());
            }
            upstream.end(reset);
            let rest = client.rest().await.unwrap_or_default();
            assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 5, "{framing:?} {part:?}: {rest:?}");
            house.proxy.is_idle().await;
            assert!(house.node.nobody_knocks(), "nothing is sent again");
        }
    }
    // Without a length only a reset tells that it is not the end.
    let (_house, mut client, mut upstream, _) = exchange(&get("/")).await;
    upstream.write("HTTP/1.1 200 OK\r\n\r\nhalf").await;
    client.head().await;
    assert_eq!(client.chunk().await.as_deref(), Some(&b"half"[..]));
    upstream.reset();
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
}

/// A body whose every block is different and known.
fn number_block(block: &mut [u8], number: u64) {
    block[..8].copy_from_slice(&number.to_le_bytes());
}

fn empty_block() -> Vec<u8> {
    (0..BLOCK).map(|at| u8::try_from(at % 251).expect("small")).collect()
}

const BLOCK: u64 = 64 * 1024;

async fn send_blocks(socket: &mut (impl tokio::io::AsyncWrite + Unpin), count: u64, sent: &AtomicU64) {
    let mut block = empty_block();
    for number in 0..count {
        number_block(&mut block, number);
        socket.write_all(&block).await.expect("a reader");
        sent.fetch_add(1, Relaxed);
    }
}

async fn check_blocks(socket: &mut (impl tokio::io::AsyncRead + Unpin), count: u64) {
    let (mut got, mut block) = (empty_block(), empty_block());
    for number in 0..count {
        timeout(PATIENCE, socket.read_exact(&mut got)).await.expect("bytes in time").expect("bytes");
        number_block(&mut block, number);
        assert!(got == block, "block {number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_whole_at_the_pace_of_their_reader_in_bounded_memory() {
    const BLOCKS: u64 = (256 << 20) / BLOCK;
    const MIB: u64 = 1024;
    let node = Node::start().await;
    let proxy = Binary::start(&node_mode(node.address, "log.access = \"off\"")).await;
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write(OK).await;
    client.message().await;
    let before = proxy.peak_memory();

    // Up.
    client.write(post(&format!("Content-Length: {}\r\n", BLOCKS * BLOCK))).await;
    upstream.head().await;
    let sent = Arc::new(AtomicU64::new(0));
    let (progress, mut from, mut to) = (sent.clone(), client.0, upstream.0);
    let sending = tokio::spawn(async move {
        send_blocks(&mut from, BLOCKS, &progress).await;
        from
    });
    stands_still(|| sent.load(Relaxed)).await;
    assert!(sent.load(Relaxed) < BLOCKS / 2, "nobody reads, and {} blocks were taken", sent.load(Relaxed));
    check_blocks(&mut to, BLOCKS).await;
    let (mut client, mut upstream) = (Raw(sending.await.expect("no panic")), Raw(to));
    let grown = proxy.peak_memory() - before;
    assert!(grown <= 16 * MIB, "up: {grown} KiB");

    // Down.
    upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BLOCKS * BLOCK)).await;
    client.head().await;
    let sent = Arc::new(AtomicU64::new(0));
    let (progress, mut from) = (sent.clone(), upstream.0);
    let sending = tokio::spawn(async move {
        send_blocks(&mut from, BLOCKS, &progress).await;
        from
    });
    stands_still(|| sent.load(Relaxed)).await;
    assert!(sent.load(Relaxed) < BLOCKS / 2, "nobody reads, and {} blocks were taken", sent.load(Relaxed));
    check_blocks(&mut client.0, BLOCKS).await;
    sending.await.expect("no panic");
    let grown = proxy.peak_memory() - before;
    assert!(grown <= 16 * MIB, "up and down: {grown} KiB");
}
