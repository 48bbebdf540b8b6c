//! Clients that do not finish their handshakes.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use crate::{
    support::{
        Proxy, Raw, Server, answer,
        wire::{Node, get, node_mode},
    },
    tls::{Authority, ask, door},
};

/// The first flight of a client, and a part of it that tells nothing.
const HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";

fn result(result: &str) -> String {
    format!("client_proxy_tls_handshakes_total{{result=\"{result}\"}}")
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_ended() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    let proxy = node.proxy_with(&format!("server.header_read_timeout = \"300ms\"\n{}", authority.config(&["a"])));
    let (mut silent, mut slow) = (Raw::connect(door(&proxy)).await, Raw::connect(door(&proxy)).await);
    slow.write(HELLO).await;
    silent.is_left().await;
    slow.is_left().await;
    proxy.metric_becomes(&result("timeout"), 2.0).await;
    proxy.is_idle().await;
    // A client that is done waits for as long as any other with its first request, and no longer.
    let mut stream = authority.http1().connect(door(&proxy)).await;
    assert_eq!(crate::tls::rest(&mut stream).await.expect("a clean end"), b"");
}

/// 64 places, a quarter of which is for handshakes of the one worker.
fn small(upstream: &Server, authority: &Authority) -> Proxy {
    let lines = format!("server.max_connections = 64\n{}", authority.config(&["a"]));
    Proxy::start(&node_mode(upstream.address, &lines))
}

async fn idlers(proxy: &Proxy, count: usize, say: &[u8]) -> Vec<Raw> {
    let mut idlers = Vec::new();
    for _ in 0..count {
        let mut idler = Raw::connect(door(proxy)).await;
        idler.write(say).await;
        idlers.push(idler);
    }
    idlers
}

#[tokio::test]
async fn clients_that_only_connect_keep_nobody_out() {
    let (upstream, authority) = (Server::start(async |_| answer(200, "hello")).await, Authority::with_one());
    let proxy = small(&upstream, &authority);
    let mut speaking = idlers(&proxy, 8, HELLO).await;
    proxy.metric_becomes("client_proxy_connections{protocol=\"unknown\"}", 8.0).await;
    // Whoever is done came after them, and is displaced by nobody.
    let mut good = authority.http1().connect(door(&proxy)).await;
    let mut silent = idlers(&proxy, 50, b"").await;
    proxy.metric_becomes(&result("displaced"), 42.0).await;
    let mut late = authority.http1().connect(door(&proxy)).await;
    for client in [&mut good, &mut late] {
        assert!(ask(client, &get("/")).await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(proxy.metric(&result("displaced")).await, 43.0, "the oldest made room for it");
    assert_eq!(proxy.metric("client_proxy_connections{protocol=\"unknown\"}").await, 15.0);
    // Those went whose turn it was, in their order; the others wait still, and so do all who have said something.
    for idler in &mut silent[..43] {
        idler.is_left().await;
    }
    for idler in silent[43..].iter_mut().chain(&mut speaking) {
        idler.waits(proxy.health).await;
    }
    drop((silent, speaking));
    proxy.metric_becomes(&result("left"), 15.0).await;
}

#[tokio::test]
async fn clients_that_begin_and_do_not_go_on_keep_nobody_out_either() {
    let (upstream, authority) = (Server::start(async |_| answer(200, "hello")).await, Authority::with_one());
    let proxy = small(&upstream, &authority);
    let _speaking = idlers(&proxy, 40, HELLO).await;
    proxy.metric_becomes(&result("displaced"), 24.0).await;
    let mut good = authority.http1().connect(door(&proxy)).await;
    assert!(ask(&mut good, &get("/")).await.starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.metric("client_proxy_connections{protocol=\"unknown\"}").await, 15.0);
}

#[tokio::test]
async fn a_drain_ends_unfinished_handshakes() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    let proxy = node.proxy_with(&format!(
        "shutdown = {{ drain_delay = \"0s\", drain_timeout = \"5s\" }}\n{}",
        authority.config(&["a"])
    ));
    let mut idler = Raw::connect(door(&proxy)).await;
    idler.write(HELLO).await;
    proxy.metric_becomes("client_proxy_connections{protocol=\"unknown\"}", 1.0).await;
    assert!(proxy.app.drain().await, "nothing is waited for");
    assert_eq!(idler.rest().await.expect("a clean end"), b"");
    proxy.metric_becomes(&result("drained"), 1.0).await;
}
