//! Clients that leave: whatever is under way for them ends soon, and is counted.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

mod support;

use std::time::Duration;

use support::{
    Proxy, Raw,
    binary::Binary,
    wire::{BlackHole, HOST, Node, OK, get, node_mode},
};
use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, timeout},
};

/// Promised is a second; the machine may be busy.
const SOON: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
enum Leaving {
    Close,
    Reset,
    /// FIN, and it would still read: as in nginx and Go, that is leaving.
    HalfClose,
}

const ALL: [Leaving; 3] = [Leaving::Close, Leaving::Reset, Leaving::HalfClose];

/// The client leaves; the upstream must see it soon, and everything must be counted back.
async fn leaves(mut client: Raw, how: Leaving, mut upstream: Raw, proxy: &Proxy) {
    let start = Instant::now();
    let rest = match how {
        Leaving::Close => {
            drop(client);
            None
        }
        Leaving::Reset => {
            client.reset();
            None
        }
        Leaving::HalfClose => {
            client.half_close().await;
            Some(client)
        }
    };
    upstream.is_left().await;
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    drop(rest);
    proxy.is_idle().await;
    proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
}

fn post(framing: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n\r\n{body}")
}

#[tokio::test]
async fn while_the_answer_is_awaited() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut gone = 0.0;
    for request in [
        get("/"),
        post("Content-Length: 6", "abc"),
        post("Content-Length: 3", "abc"),
        post("Transfer-Encoding: chunked", "3\r\nabc\r\n"),
        post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        get("/").repeat(3),
        post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n") + &get("/"),
    ] {
        for how in ALL {
            let mut client = Raw::connect(proxy.address).await;
            client.write(&request).await;
            let mut upstream = node.accept().await;
            upstream.head().await;
            leaves(client, how, upstream, &proxy).await;
            gone += 1.0;
            let counter = "client_proxy_requests_total{origin=\"proxy\",status=\"499\",error=\"client_closed\"}";
            assert_eq!(proxy.metric(counter).await, gone, "{how:?} {request:?}");
            assert!(node.nobody_knocks(), "what was pipelined is not served any more");
        }
    }
}

#[tokio::test]
async fn during_a_download_that_pauses() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for (framing, part) in
        [("Content-Length: 9", "half"), ("Transfer-Encoding: chunked", "4\r\nhalf\r\n"), ("X: y", "half")]
    {
        for request in [get("/"), post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), get("/").repeat(2)] {
            for how in ALL {
                let mut client = Raw::connect(proxy.address).await;
                client.write(&request).await;
                let mut upstream = node.accept().await;
                upstream.head().await;
                if request.ends_with("0\r\n\r\n") {
                    upstream.read_until("0\r\n\r\n").await;
                }
                upstream.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{part}")).await;
                client.read_until("half").await;
                leaves(client, how, upstream, &proxy).await;
            }
        }
    }
    assert_eq!(proxy.metric("client_proxy_requests_total{origin=\"sandbox\",status=\"200\",error=\"\"}").await, 27.0);
}

#[tokio::test]
async fn during_a_download_that_does_not_end() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for reads in [true, false] {
        for how in ALL {
            let mut client = Raw::connect(proxy.address).await;
            client.write(get("/")).await;
            let mut upstream = node.accept().await;
            upstream.head().await;
            upstream.write("HTTP/1.1 200 OK\r\n\r\n").await;
            client.head().await;
            let start = Instant::now();
            let sending = tokio::spawn(async move {
                let block = [7; 16 * 1024];
                while upstream.0.write_all(&block).await.is_ok() {}
            });
            if reads {
                client.exactly(100_000).await;
            }
            match how {
                Leaving::Close => drop(client),
                Leaving::Reset => client.reset(),
                Leaving::HalfClose => {
                    client.half_close().await;
                    timeout(SOON, sending).await.expect("soon").expect("no panic");
                    proxy.is_idle().await;
                    continue;
                }
            }
            timeout(SOON, sending).await.expect("soon").expect("no panic");
            assert!(start.elapsed() < SOON);
            proxy.is_idle().await;
        }
    }
}

#[tokio::test]
async fn during_an_upload_that_nobody_reads() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for framing in ["Content-Length: 1000000000", "Transfer-Encoding: chunked"] {
        for how in [Leaving::Close, Leaving::Reset] {
            let mut client = Raw::connect(proxy.address).await;
            client.write(post(framing, "")).await;
            let mut upstream = node.accept().await;
            upstream.head().await;
            // Until every buffer on the way is full.
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            let plain = vec![7; 0x10000];
            let block: &[u8] = if framing.ends_with("chunked") { chunk.as_bytes() } else { &plain };
            while timeout(Duration::from_millis(200), client.0.write_all(block)).await.is_ok() {}
            leaves(client, how, upstream, &proxy).await;
        }
    }
}

#[tokio::test]
async fn while_the_node_is_dialled() {
    let hole = BlackHole::dig();
    let proxy = Proxy::start(&node_mode(hole.address, "upstream.connect_timeout = \"60s\""));
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    proxy.metric_becomes("client_proxy_connections", 1.0).await;
    drop(client);
    proxy.is_idle().await;
}

#[tokio::test]
async fn the_access_line_says_who_ended_it() {
    let node = Node::start().await;
    let mut proxy = Binary::start(&node_mode(node.address, "")).await;
    // Before an answer.
    let mut client = Raw::connect(proxy.address).await;
    client.write(post("Content-Length: 6", "abc")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    drop(client);
    upstream.is_left().await;
    let line = proxy.access_line().await;
    assert_eq!(
        (&line["status"], &line["origin"], &line["error"]),
        (&499.into(), &"proxy".into(), &"client_closed".into())
    );
    assert_eq!((&line["ended_by"], &line["bytes"], &line["level"]), (&"client".into(), &0.into(), &"INFO".into()));
    // In the middle of it.
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write("HTTP/1.1 206 Part\r\nContent-Length: 9\r\n\r\nhalf").await;
    client.read_until("half").await;
    drop(client);
    upstream.is_left().await;
    let line = proxy.access_line().await;
    assert_eq!((&line["status"], &line["origin"], &line["error"]), (&206.into(), &"sandbox".into(), &"".into()));
    assert_eq!((&line["ended_by"], &line["bytes"]), (&"client".into(), &4.into()));
    // The sandbox leaves.
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    client.read_until("half").await;
    drop(upstream);
    client.is_left().await;
    let line = proxy.access_line().await;
    assert_eq!((&line["status"], &line["ended_by"], &line["bytes"]), (&200.into(), &"sandbox".into(), &4.into()));
    // Nobody: whole answers, with and without body, with trailers.
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n";
    let (mut client, mut upstream) = (Raw::connect(proxy.address).await, None);
    for (request, reply, bytes) in [
        (get("/"), OK, 2),
        (get("/"), chunked, 2),
        (get("/"), "HTTP/1.1 204 No Content\r\n\r\n", 0),
        (get("/").replace("GET", "HEAD"), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0),
    ] {
        client.write(&request).await;
        if upstream.is_none() {
            upstream = Some(node.accept().await);
        }
        let upstream = upstream.as_mut().expect("just put there");
        upstream.head().await;
        upstream.write(reply).await;
        if request.starts_with("HEAD") {
            client.head().await;
        } else {
            client.message().await;
        }
        let line = proxy.access_line().await;
        assert_eq!((&line["ended_by"], &line["bytes"]), (&"".into(), &bytes.into()), "{reply}");
    }
    // Nor own answers.
    for method in ["GET", "HEAD"] {
        client.write(format!("{method} / HTTP/1.1\r\nHost: nonsense\r\n\r\n")).await;
        let head = support::wire::Head(client.head().await);
        if method == "GET" {
            client.exactly(head.one("content-length").parse().expect("a length")).await;
        }
        let line = proxy.access_line().await;
        assert_eq!((&line["status"], &line["ended_by"]), (&400.into(), &"".into()), "{method}");
    }
}
