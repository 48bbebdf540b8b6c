//! What a handshake comes to: which certificate, which protocol, which version, and whether it was short.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use rustls::HandshakeKind;
use tokio::io::AsyncWriteExt as _;

use crate::{
    support::{
        Raw, Server, answer,
        wire::{HOST, Node, OK, get, node_mode},
    },
    tls::{Authority, Client, VERSIONS, ask, door, get_http2, leaf, rest},
};

#[tokio::test]
async fn a_client_sees_the_certificate_for_the_name_that_it_asks_for() {
    let authority = Authority::new();
    let all = ["first", "wild", "exact", "late"];
    authority.issue("first", &["first.test", "*.first.test"]);
    authority.issue("wild", &["*.example.test"]);
    authority.issue("exact", &["A.Example.Test", "other.test"]);
    authority.issue("late", &["*.example.test", "first.test", "b.c.example.test"]);
    let node = Node::start().await;
    let proxy = node.proxy_with(&authority.config(&all));
    let shown = async |sni: bool, name: &str| {
        let stream = Client::credulous(sni).try_connect(door(&proxy), name).await.expect("a handshake");
        all.into_iter().find(|name| leaf(&stream) == authority.leaf(name)).expect("one of them")
    };
    for (name, want) in [
        ("first.test", "first"),
        ("x.first.test", "first"),
        ("b.example.test", "wild"),
        ("B.EXAMPLE.TEST", "wild"),
        ("8000-abc.example.test", "wild"),
        ("a.example.test", "exact"),
        ("A.EXAMPLE.TEST", "exact"),
        ("other.test", "exact"),
        ("b.c.example.test", "late"),
        // One label, no more and no less; and what nobody is for.
        ("a.b.example.test", "first"),
        ("example.test", "first"),
        ("nobody.test", "first"),
        ("localhost", "first"),
    ] {
        assert_eq!(shown(true, name).await, want, "{name}");
        assert_eq!(shown(false, name).await, "first", "nothing is said of {name}");
    }
    assert_eq!(shown(true, "127.0.0.1").await, "first", "an address is not told");
}

#[tokio::test]
async fn the_protocol_is_agreed_upon_and_each_is_served() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let authority = Authority::with_one();
    let proxy = crate::support::Proxy::start(&node_mode(upstream.address, &authority.config(&["a"])));
    for version in VERSIONS {
        for (offers, agreed) in [
            (&["h2", "http/1.1"][..], Some("h2")),
            (&["http/1.1", "h2"], Some("h2")),
            (&["http/1.1"], Some("http/1.1")),
            (&["spdy/3", "http/1.1"], Some("http/1.1")),
            (&[], None),
        ] {
            let mut stream = authority.client(offers, &[version]).connect(door(&proxy)).await;
            let session = stream.get_ref().1;
            assert_eq!(session.alpn_protocol(), agreed.map(str::as_bytes), "{offers:?}");
            assert_eq!(session.protocol_version(), Some(version.version));
            if agreed == Some("h2") {
                let served = async { get_http2(stream, "/two").await };
                assert_eq!(served.await.text(), "hello");
            } else {
                assert!(ask(&mut stream, &get("/one")).await.starts_with("HTTP/1.1 200 OK\r\n"), "{offers:?}");
                proxy.metric_becomes("client_proxy_connections{protocol=\"http1\"}", 1.0).await;
                assert_eq!(proxy.metric("client_proxy_connections").await, 1.0);
                drop(stream);
            }
            proxy.is_idle().await;
        }
    }
    let seen = std::mem::take(&mut *upstream.seen.lock().expect("no panic"));
    assert_eq!(seen.len(), 10);
    for head in seen {
        assert_eq!(head.headers["x-forwarded-proto"], "https");
        assert_eq!(head.headers["host"], HOST);
    }
    // What nobody speaks is not guessed.
    authority.client(&["spdy/3"], &VERSIONS).try_connect(door(&proxy), HOST).await.expect_err("no protocol");
    proxy.metric_becomes("client_proxy_tls_handshakes_total{result=\"failed\"}", 1.0).await;
}

#[tokio::test]
async fn without_alpn_nothing_but_http1_is_spoken() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    let proxy = node.proxy_with(&authority.config(&["a"]));
    let mut stream = authority.client(&[], &VERSIONS).connect(door(&proxy)).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("a peer that reads");
    assert_eq!(rest(&mut stream).await.expect("told"), b"", "no frame comes back");
}

#[tokio::test]
async fn a_client_that_was_here_is_recognised_by_its_ticket() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let authority = Authority::with_one();
    let lines = authority.config(&["a"]).replace("server.tls.listen", "server.workers = 3\nserver.tls.listen");
    let config = node_mode(upstream.address, &lines).replacen("server.workers = 1\n", "", 1);
    let proxy = crate::support::Proxy::start(&config);
    for version in VERSIONS {
        let client = authority.client(&["http/1.1"], &[version]);
        let mut kinds = Vec::new();
        // On whichever worker.
        for _ in 0..4 {
            let mut stream = client.connect(door(&proxy)).await;
            ask(&mut stream, &get("/")).await;
            kinds.push(stream.get_ref().1.handshake_kind().expect("done"));
        }
        assert_eq!(kinds[0], HandshakeKind::Full, "{version:?}");
        assert!(kinds[1..].iter().all(|kind| *kind == HandshakeKind::Resumed), "{kinds:?}");
    }
    assert_eq!(proxy.metric("client_proxy_tls_handshakes_total{result=\"ok\"}").await, 2.0);
    assert_eq!(proxy.metric("client_proxy_tls_handshakes_total{result=\"resumed\"}").await, 6.0);
}

#[tokio::test]
async fn plain_http_at_the_tls_port_ends_with_an_alert() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    let proxy = node.proxy_with(&authority.config(&["a"]));
    let mut client = Raw::connect(door(&proxy)).await;
    // More than one read takes: what is not read must not turn the end into a reset.
    client.write(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX: {}\r\n\r\n", "x".repeat(100_000))).await;
    let said = client.rest().await.expect("a clean end");
    assert_eq!((said[0], said.len()), (0x15, 7), "one alert: {said:?}");
    assert!(node.nobody_knocks());
    proxy.metric_becomes("client_proxy_tls_handshakes_total{result=\"failed\"}", 1.0).await;
}

#[tokio::test]
async fn plain_clients_are_served_beside() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    let proxy = node.proxy_with(&authority.config(&["a"]));
    let (mut client, mut upstream, seen) = node.exchange(&proxy, get("/")).await;
    assert!(!seen.has("x-forwarded-proto"), "{seen:?}");
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}
