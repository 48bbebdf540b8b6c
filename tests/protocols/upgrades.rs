//! Upgrades byte by byte: what is relayed, what is refused, and how tunnels end.

use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{
    Raw,
    http2::{Http2, connect},
    wire::{HOST, Head, Node, OK, get},
    within_a_second,
};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n";

/// A request for a protocol that nobody knows.
fn upgrade(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
}

/// Both ends of a tunnel.
async fn tunnel(node: &Node, proxy: &crate::support::Proxy) -> (Raw, Raw) {
    let (mut client, mut upstream, _) = node.exchange(proxy, upgrade("/")).await;
    upstream.write(SWITCH).await;
    assert_eq!(Head(client.head().await).status(), 101);
    (client, upstream)
}

#[tokio::test]
async fn any_protocol_may_be_asked_for_and_bytes_behind_the_heads_are_not_lost() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let early = format!("{}first words", upgrade("/x"));
    let (mut client, mut upstream, seen) = node.exchange(&proxy, early).await;
    assert_eq!((seen.one("upgrade"), seen.one("connection")), ("chat", "Upgrade"));
    assert!(seen.line().starts_with("GET /x HTTP/1.1"));
    upstream.write(format!("{SWITCH}and the answer")).await;
    let head = Head(client.head().await);
    assert_eq!((head.status(), head.one("upgrade"), head.one("connection")), (101, "chat", "Upgrade"));
    assert_eq!(client.exactly(14).await, b"and the answer");
    assert_eq!(upstream.exactly(11).await, b"first words");
    proxy.metric_becomes("client_proxy_tunnels", 1.0).await;
}

#[tokio::test]
async fn a_refusal_is_an_answer_like_any_other() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for status in ["401 Unauthorized", "404 Not Found", "302 Found", "200 OK"] {
        let (mut client, mut upstream, _) = node.exchange(&proxy, upgrade("/")).await;
        upstream.write(format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\nLocation: /x\r\n\r\nsorry")).await;
        let answer = client.message().await;
        assert_eq!((answer.head.status().to_string(), answer.text()), (status[..3].into(), "sorry".into()));
        assert!(!answer.head.has("upgrade"));
        // Both connections are good for more.
        client.write(get("/next")).await;
        assert!(Head(upstream.head().await).line().starts_with("GET /next "));
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        drop((client, upstream));
        proxy.is_idle().await;
    }
}

#[tokio::test]
async fn http2_is_no_protocol_to_switch_to() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let asked = format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
    );
    let (mut client, mut upstream, seen) = node.exchange(&proxy, asked).await;
    for name in ["upgrade", "connection", "http2-settings"] {
        assert!(!seen.has(name), "{name}");
    }
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn with_a_body_it_is_a_plain_request() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let asked = upgrade("/").replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\nbody");
    let (mut client, mut upstream, seen) = node.exchange(&proxy, asked).await;
    assert!(!seen.has("upgrade") && !seen.has("connection"));
    assert_eq!(upstream.exactly(4).await, b"body");
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn a_side_that_ends_lets_the_other_go_on() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let (mut client, mut upstream) = tunnel(&node, &proxy).await;
    client.write("last words").await;
    client.half_close().await;
    assert_eq!(upstream.rest().await.expect("an orderly end"), b"last words");
    upstream.write("and then some").await;
    assert_eq!(client.exactly(13).await, b"and then some");
    drop(upstream);
    assert_eq!(client.rest().await.expect("an orderly end"), b"");
    proxy.is_idle_upstream_too().await;
    let (mut client, mut upstream) = tunnel(&node, &proxy).await;
    upstream.write("bye").await;
    upstream.half_close().await;
    assert_eq!(client.rest().await.expect("an orderly end"), b"bye");
    client.write("not yet").await;
    assert_eq!(upstream.exactly(7).await, b"not yet");
    drop(client);
    upstream.is_left().await;
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn when_a_side_breaks_off_the_other_hears_of_it_within_a_second() {
    let node = Node::start().await;
    let proxy = node.proxy();
    within_a_second("the application", async || {
        let (client, mut upstream) = tunnel(&node, &proxy).await;
        let start = tokio::time::Instant::now();
        client.reset();
        upstream.is_left().await;
        start.elapsed()
    })
    .await;
    within_a_second("the client", async || {
        let (mut client, upstream) = tunnel(&node, &proxy).await;
        let start = tokio::time::Instant::now();
        upstream.reset();
        client.is_left().await;
        start.elapsed()
    })
    .await;
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn no_timer_of_http_ends_a_silent_tunnel() {
    let node = Node::start().await;
    let proxy = node.proxy_with(
        "server.header_read_timeout = \"200ms\"\nserver.idle_timeout = \"300ms\"\nupstream.idle_timeout = \"300ms\"\n\
         upstream.response_header_timeout = \"300ms\"",
    );
    let (mut client, mut upstream) = tunnel(&node, &proxy).await;
    let http2 = Http2::connect(proxy.address).await;
    let mut second = None;
    let (answer, ()) = tokio::join!(http2.begin(connect("websocket", "abc", "/")), async {
        let mut upstream = node.accept().await;
        let seen = Head(upstream.head().await);
        upstream.write(accept(seen.one("sec-websocket-key"))).await;
        second = Some(upstream);
    });
    let mut over_http2 = TokioIo::new(hyper::upgrade::on(answer.expect("an answer")).await.expect("a tunnel"));
    // Whoever is as silent and no tunnel is left, one after the other: that is longer than each of the times.
    for _ in 0..3 {
        let (mut other, mut its, _) = node.exchange(&proxy, get("/")).await;
        its.write(OK).await;
        assert_eq!(other.message().await.text(), "ok");
        other.is_left().await;
    }
    client.write("still here").await;
    assert_eq!(upstream.exactly(10).await, b"still here");
    upstream.write("so am I").await;
    assert_eq!(client.exactly(7).await, b"so am I");
    over_http2.write_all(b"me too").await.expect("a tunnel");
    assert_eq!(second.expect("a connection").exactly(6).await, b"me too");
}

/// RFC 6455 §4.2.2
fn accept(key: &str) -> String {
    let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

#[tokio::test]
async fn over_http2_a_refusal_is_relayed_and_half_an_agreement_is_none() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    for (said, status, error) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_owned(), 403, None),
        // A success would say that the tunnel stands.
        (OK.to_owned(), 502, Some("upstream_failed")),
        (accept("c29tZSBvdGhlciBrZXkgICA="), 502, Some("upstream_failed")),
        (SWITCH.to_owned(), 502, Some("upstream_failed")),
    ] {
        let ask = client.send(connect("websocket", "abc", "/"));
        let (answer, ()) = tokio::join!(ask, async {
            let mut upstream = node.accept().await;
            upstream.head().await;
            upstream.write(&said).await;
        });
        assert_eq!(answer.status.as_u16(), status, "{said}");
        match error {
            None => assert_eq!(answer.text(), "no"),
            Some(error) => assert_eq!(answer.error(), error),
        }
        proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
    }
    let answer = client.send(connect("connect-udp", "abc", "/")).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (501, "protocol_not_supported".into()));
    let mut plain = connect("websocket", "abc", "/");
    plain.extensions_mut().clear();
    *plain.uri_mut() = "8000-abc.example.test:443".parse().expect("an authority");
    let answer = client.send(plain).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (405, "method_not_allowed".into()));
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn over_http2_too_each_side_may_end_alone() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    for sandbox_first in [false, true] {
        let (answer, mut upstream) = tokio::join!(client.begin(connect("websocket", "abc", "/")), async {
            let mut upstream = node.accept().await;
            let seen = Head(upstream.head().await);
            upstream.write(accept(seen.one("sec-websocket-key"))).await;
            upstream
        });
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.expect("a tunnel"));
        let mut heard = Vec::new();
        if sandbox_first {
            upstream.write("bye").await;
            upstream.half_close().await;
            tunnel.read_to_end(&mut heard).await.expect("an orderly end");
            assert_eq!(heard, b"bye");
            tunnel.write_all(b"not yet").await.expect("a peer");
            assert_eq!(upstream.exactly(7).await, b"not yet");
            tunnel.shutdown().await.expect("a peer");
            assert_eq!(upstream.rest().await.expect("an orderly end"), b"");
        } else {
            tunnel.write_all(b"last words").await.expect("a peer");
            tunnel.shutdown().await.expect("a peer");
            assert_eq!(upstream.rest().await.expect("an orderly end"), b"last words");
            upstream.write("and then some").await;
            drop(upstream);
            tunnel.read_to_end(&mut heard).await.expect("an orderly end");
            assert_eq!(heard, b"and then some");
        }
        proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
    }
    // What was asked for in vain has left nothing behind.
    let (answer, ()) = tokio::join!(
        client.begin(crate::support::http2::request("GET", "abc", "/", crate::support::http2::full(""))),
        async {
            let mut upstream = node.accept().await;
            upstream.head().await;
            upstream.write(OK).await;
        }
    );
    let body = answer.expect("an answer").into_body().collect().await.expect("a body");
    assert_eq!(body.to_bytes(), "ok");
}

#[tokio::test]
async fn a_client_that_is_gone_is_not_kept_for_a_sandbox_that_says_nothing() {
    let node = Node::start().await;
    let proxy = node.proxy();
    // It has ended its direction before; nothing is read from it any more.
    let (mut client, mut upstream) = tunnel(&node, &proxy).await;
    client.half_close().await;
    assert_eq!(upstream.rest().await.expect("an orderly end"), b"");
    client.reset();
    proxy.metric_becomes("client_proxy_tunnels", 0.0).await;

    let http2 = Http2::connect(proxy.address).await;
    for _ in 0..5 {
        let (answer, mut upstream) = tokio::join!(http2.begin(connect("websocket", "abc", "/")), async {
            let mut upstream = node.accept().await;
            let seen = Head(upstream.head().await);
            upstream.write(accept(seen.one("sec-websocket-key"))).await;
            upstream
        });
        let tunnel = hyper::upgrade::on(answer.expect("an answer")).await.expect("a tunnel");
        proxy.metric_becomes("client_proxy_tunnels", 1.0).await;
        // The stream is reset (CANCEL), as by a browser whose tab closes.
        drop(tunnel);
        assert_eq!(upstream.rest().await.expect("an orderly end"), b"");
        proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
    }
    let (answer, upstream) = tokio::join!(http2.begin(connect("websocket", "abc", "/")), async {
        let mut upstream = node.accept().await;
        let seen = Head(upstream.head().await);
        upstream.write(accept(seen.one("sec-websocket-key"))).await;
        upstream
    });
    let tunnel = hyper::upgrade::on(answer.expect("an answer")).await.expect("a tunnel");
    drop((http2, tunnel));
    proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
    proxy.is_idle_upstream_too().await;
    drop(upstream);
}
