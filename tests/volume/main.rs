//! Large transfers: what goes through is never in memory at once. Takes a minute.

use std::{future::Future, net::SocketAddr, pin::pin};

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy, sink},
    net::TcpStream,
    time::{Duration, timeout},
};

#[path = "../support/frames.rs"]
mod frames;
#[path = "../support/mod.rs"]
mod support;

use frames::{Frames, SETTINGS, WINDOW_UPDATE, frame};
use support::{
    Raw, Server, answer,
    binary::Binary,
    eventually,
    http2::{AnyBody, Http2, full, request},
    wire::{HOST, Node, node_mode},
};

const GIB: u64 = 1 << 30;
/// What a transfer may cost, KiB.
const GROWTH: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_mins(3);
const PIECE: usize = 64 * 1024;

/// Runs it, and asserts that the proxy's memory has not grown by more than a transfer may cost.
async fn costs_little<T>(proxy: &Binary, what: &str, transfer: impl Future<Output = T>) -> T {
    let before = proxy.peak_memory();
    let done = timeout(PATIENCE, transfer).await.unwrap_or_else(|_| panic!("{what} takes too long"));
    let grown = proxy.peak_memory().saturating_sub(before);
    assert!(grown <= GROWTH, "{what} cost {grown} KiB");
    done
}

async fn pour(mut into: impl AsyncWrite + Unpin) {
    let piece = vec![7; PIECE];
    for _ in 0..GIB / PIECE as u64 {
        into.write_all(&piece).await.expect("a peer that reads");
    }
}

async fn drain(from: impl AsyncRead) {
    assert_eq!(copy(&mut pin!(from.take(GIB)), &mut sink()).await.expect("no error"), GIB);
}

/// A body of a GiB.
fn gib() -> AnyBody {
    let piece = Bytes::from(vec![7; PIECE]);
    let pieces = (0..GIB / PIECE as u64).map(move |_| Ok(Frame::data(piece.clone())));
    StreamBody::new(stream::iter(pieces)).boxed()
}

/// How many bytes a body has.
async fn length(mut body: hyper::body::Incoming) -> u64 {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame.expect("no error").data_ref().map_or(0, |data| data.len() as u64);
    }
    bytes
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("a connection")
}

#[tokio::test]
async fn a_gib_goes_down_and_up_by_http1_in_constant_memory() {
    let node = Node::start().await;
    let proxy = Binary::start(&node_mode(node.address, "")).await;
    let mut client = Raw(connect(proxy.address).await);
    client.write(support::wire::get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n")).await;
    client.head().await;
    costs_little(&proxy, "down", async { tokio::join!(pour(&mut upstream.0), drain(&mut client.0)) }).await;
    client.write(format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {GIB}\r\n\r\n")).await;
    upstream.head().await;
    costs_little(&proxy, "up", async { tokio::join!(pour(&mut client.0), drain(&mut upstream.0)) }).await;
}

#[tokio::test]
async fn a_gib_goes_both_ways_at_once_through_a_tunnel_in_constant_memory() {
    let node = Node::start().await;
    let proxy = Binary::start(&node_mode(node.address, "")).await;
    let mut client = Raw(connect(proxy.address).await);
    client.write(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n").await;
    client.head().await;
    let (from_client, to_client) = client.0.split();
    let (from_upstream, to_upstream) = upstream.0.split();
    let both = async {
        tokio::join!(pour(to_client), drain(from_upstream), pour(to_upstream), drain(from_client));
    };
    costs_little(&proxy, "the tunnel", both).await;
}

#[tokio::test]
async fn a_gib_goes_down_and_up_by_http2_in_constant_memory() {
    let node = Server::start(async |request| {
        let bytes = length(request.into_body()).await;
        answer(200, bytes.to_string())
    })
    .await;
    let proxy = Binary::start(&node_mode(node.address, "")).await;
    let client = Http2::connect(proxy.address).await;
    let upload = async {
        let answer = client.sender.clone().send_request(request("POST", "abc", "/", gib())).await.expect("an answer");
        answer.into_body().collect().await.expect("a body").to_bytes()
    };
    assert_eq!(costs_little(&proxy, "up", upload).await, GIB.to_string());

    let node = Node::start().await;
    let proxy = Binary::start(&node_mode(node.address, "")).await;
    let client = Http2::connect(proxy.address).await;
    let asked = client.begin(request("GET", "abc", "/", full("")));
    let (answer, mut upstream) = tokio::join!(asked, async {
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {GIB}\r\n\r\n")).await;
        upstream
    });
    let body = answer.expect("an answer").into_body();
    let download = async { tokio::join!(pour(&mut upstream.0), length(body)) };
    assert_eq!(costs_little(&proxy, "down", download).await.1, GIB);
}

#[tokio::test]
async fn answers_that_nobody_reads_cost_little_however_large_the_windows_are() {
    /// KiB; what one costs over HTTP/1.1, nearly all of it what was read of the sandbox's at once.
    const EACH: u64 = 800;
    const STREAMS: u32 = 100;
    let node = Server::start(async |_| answer(200, vec![7; 4 << 20])).await;
    let proxy = Binary::start(&node_mode(node.address, "")).await;
    let before = proxy.peak_memory();
    let mut client = Frames::connect(proxy.address).await;
    let largest = (1_u32 << 31) - 1;
    client.send(frame(SETTINGS, 0, 0, [&[0, 4][..], &largest.to_be_bytes()].concat())).await;
    client.send(frame(WINDOW_UPDATE, 0, 0, (largest - 65_535).to_be_bytes())).await;
    for number in 0..STREAMS {
        client.get(2 * number + 1, HOST, "/").await;
    }
    eventually("all are asked", async || node.requests() == STREAMS as usize).await;
    support::stands_still(|| proxy.peak_memory()).await;
    let grown = proxy.peak_memory() - before;
    assert!(grown < EACH * u64::from(STREAMS), "{STREAMS} answers cost {grown} KiB");
}
