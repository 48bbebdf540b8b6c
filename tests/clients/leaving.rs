//! Clients that leave: whatever is under way for them ends soon, and is counted.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt as _,
    time::{Instant, timeout},
};

use crate::support::{
    self, PATIENCE, Proxy, Raw,
    binary::Binary,
    wire::{BlackHole, HOST, Node, OK, get, node_mode},
    within_a_second,
};

#[derive(Clone, Copy, Debug)]
enum Leaving {
    Close,
    Reset,
    /// FIN, and it would still read: as in nginx and Go, that is leaving.
    HalfClose,
}

const ALL: [Leaving; 3] = [Leaving::Close, Leaving::Reset, Leaving::HalfClose];

impl Leaving {
    /// The client leaves; what is left of its connection.
    async fn of(self, mut client: Raw) -> Option<Raw> {
        match self {
            Self::Close => drop(client),
            Self::Reset => client.reset(),
            Self::HalfClose => {
                client.half_close().await;
                return Some(client);
            }
        }
        None
    }
}

/// The client leaves: how long until the upstream has seen it. Everything must be counted back.
async fn leaves(client: Raw, how: Leaving, mut upstream: Raw, proxy: &Proxy) -> Duration {
    let start = Instant::now();
    let rest = how.of(client).await;
    upstream.is_left().await;
    let seen = start.elapsed();
    drop(rest);
    proxy.is_idle_upstream_too().await;
    seen
}

fn post(framing: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n\r\n{body}")
}

#[tokio::test]
async fn a_client_that_leaves_before_its_answer_ends_the_work_for_it() {
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
            within_a_second(&format!("{how:?} {request:?}"), async || {
                let (client, upstream, _) = node.exchange(&proxy, &request).await;
                let seen = leaves(client, how, upstream, &proxy).await;
                gone += 1.0;
                let counter = "client_proxy_requests_total{origin=\"proxy\",status=\"499\",error=\"client_closed\"}";
                assert_eq!(proxy.metric(counter).await, gone, "{how:?} {request:?}");
                assert!(node.nobody_knocks(), "what was pipelined is not served any more");
                seen
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_download_that_pauses_ends_it() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut begun = 0.0;
    for (framing, part) in
        [("Content-Length: 9", "half"), ("Transfer-Encoding: chunked", "4\r\nhalf\r\n"), ("X: y", "half")]
    {
        for request in [get("/"), post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), get("/").repeat(2)] {
            for how in ALL {
                within_a_second(&format!("{how:?} {framing:?} {request:?}"), async || {
                    let (mut client, mut upstream, _) = node.exchange(&proxy, &request).await;
                    if request.ends_with("0\r\n\r\n") {
                        upstream.read_until("0\r\n\r\n").await;
                    }
                    upstream.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{part}")).await;
                    client.read_until("half").await;
                    begun += 1.0;
                    leaves(client, how, upstream, &proxy).await
                })
                .await;
            }
        }
    }
    let served = "client_proxy_requests_total{origin=\"sandbox\",status=\"200\",error=\"\"}";
    assert_eq!(proxy.metric(served).await, begun);
}

#[tokio::test]
async fn a_client_that_leaves_a_download_without_end_ends_it() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for reads in [true, false] {
        for how in ALL {
            within_a_second(&format!("{how:?}, reads {reads}"), async || {
                let (mut client, mut upstream, _) = node.exchange(&proxy, get("/")).await;
                upstream.write("HTTP/1.1 200 OK\r\n\r\n").await;
                client.head().await;
                let sending = tokio::spawn(async move {
                    let block = [7; 16 * 1024];
                    while upstream.0.write_all(&block).await.is_ok() {}
                });
                if reads {
                    client.exactly(100_000).await;
                }
                let start = Instant::now();
                let rest = how.of(client).await;
                timeout(PATIENCE, sending).await.expect("an end").expect("no panic");
                let seen = start.elapsed();
                drop(rest);
                proxy.is_idle_upstream_too().await;
                seen
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_an_upload_that_nobody_reads_ends_it() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for framing in ["Content-Length: 1000000000", "Transfer-Encoding: chunked"] {
        for how in [Leaving::Close, Leaving::Reset] {
            within_a_second(&format!("{how:?} {framing:?}"), async || {
                let (mut client, upstream, _) = node.exchange(&proxy, post(framing, "")).await;
                // Until every buffer on the way is full.
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                let plain = vec![7; 0x10000];
                let block: &[u8] = if framing.ends_with("chunked") { chunk.as_bytes() } else { &plain };
                while timeout(Duration::from_millis(200), client.0.write_all(block)).await.is_ok() {}
                leaves(client, how, upstream, &proxy).await
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_the_node_is_dialled_is_counted_off() {
    let hole = BlackHole::dig();
    let proxy = Proxy::start(&node_mode(hole.address, "upstream.connect_timeout = \"60s\""));
    within_a_second("nothing is under way", async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write(get("/")).await;
        proxy.metric_becomes("client_proxy_connections", 1.0).await;
        let left = Instant::now();
        drop(client);
        proxy.is_idle().await;
        left.elapsed()
    })
    .await;
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
