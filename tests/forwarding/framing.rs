//! Where messages end: whatever the client sends, the sandbox sees one whole request or an aborted one, and
//! an answer that breaks off never looks whole.

use std::io::ErrorKind;

use crate::support::{
    Proxy, Raw,
    binary::Binary,
    wire::{HOST, Head, Node, OK, direct_mode, get, node_mode},
};
use rustix::process::Signal;

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

fn with_body(method: &str, framing: &str, body: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n{body}")
}

#[tokio::test]
async fn every_method_may_have_a_body() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/first")).await;
    let mut upstream = node.accept().await;
    upstream.message().await;
    upstream.write(OK).await;
    client.message().await;
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "PURGE"] {
        for (framing, body, want) in [
            (CHUNKED, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde"),
            (CHUNKED, "0\r\n\r\n", ""),
            ("Content-Length: 5\r\n", "abcde", "abcde"),
            ("Content-Length: 0\r\n", "", ""),
        ] {
            client.write(with_body(method, framing, body)).await;
            let seen = upstream.message().await;
            assert_eq!((seen.head.line(), &*seen.text()), (&*format!("{method} / HTTP/1.1"), want), "{framing}");
            let chunked = framing == CHUNKED;
            assert_eq!((seen.head.has("transfer-encoding"), seen.head.has("content-length")), (chunked, !chunked));
            if method == "HEAD" {
                upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
                client.head().await;
            } else {
                upstream.write(OK).await;
                client.message().await;
            }
        }
    }
    assert!(node.nobody_knocks(), "one connection, and nothing on it but these requests");
}

#[tokio::test]
async fn a_body_without_length_goes_to_no_connection_that_speaks_http_1_0() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    let mut old = node.accept().await;
    old.head().await;
    old.write("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok").await;
    client.message().await;
    client.write(with_body("POST", CHUNKED, "3\r\nabc\r\n0\r\n\r\n")).await;
    let mut upstream = node.accept().await;
    let seen = upstream.message().await;
    assert_eq!((seen.head.one("transfer-encoding"), &*seen.text()), ("chunked", "abc"));
    old.is_left().await;
}

#[tokio::test]
async fn a_malformed_body_is_its_clients_fault() {
    for (method, bad) in [
        ("POST", "ZZ\r\n"),
        ("PUT", "3\r\nabcd\r\n"),
        ("GET", "ffffffffffffffffff\r\n"),
        ("POST", "0\r\nno trailer\r\n\r\n"),
    ] {
        let node = Node::start().await;
        let proxy = node.proxy();
        let mut client = Raw::connect(proxy.address).await;
        client.write(get("/first")).await;
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(OK).await;
        client.message().await;
        client.write(with_body(method, CHUNKED, "3\r\nabc\r\n")).await;
        upstream.head().await;
        assert_eq!(upstream.chunk().await.as_deref(), Some(&b"abc"[..]));
        client.write(bad).await;
        let answer = client.message().await;
        assert_eq!(answer.refusal(), (400, "invalid_body".into()), "{bad:?}");
        assert_eq!(answer.head.one("connection"), "close");
        client.is_left().await;
        let seen = upstream.rest().await.unwrap_or_default();
        assert!(!seen.ends_with(b"0\r\n\r\n"), "aborted, not ended: {seen:?}");
        assert!(node.nobody_knocks(), "nothing is sent again");
    }
}

#[tokio::test]
async fn a_protocol_that_nobody_asked_for_is_a_failure() {
    let other = "Connection: upgrade\r\nUpgrade: other\r\n";
    for (direct, asked) in [(false, ""), (true, ""), (false, other), (true, other)] {
        let node = Node::start().await;
        let port = node.address.port();
        let proxy = if direct { Proxy::start(&direct_mode("")) } else { node.proxy() };
        let host = if direct { format!("{port}-abc.example.test") } else { HOST.into() };
        let mut client = Raw::connect(proxy.address).await;
        client.write(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{asked}\r\n")).await;
        let mut upstream = node.accept().await;
        assert_eq!(Head(upstream.head().await).has("upgrade"), !asked.is_empty());
        upstream
            .write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nframe")
            .await;
        let answer = client.message().await;
        assert_eq!(answer.refusal(), (502, "upstream_failed".into()));
        assert!(answer.text().contains("switched to a protocol"), "{}", answer.text());
        upstream.is_left().await;
    }
}

#[tokio::test]
async fn an_answer_that_only_its_connection_ends_is_whole_or_reset() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let chunked = format!("HTTP/1.1 200 OK\r\n{CHUNKED}\r\n4\r\nhalf\r\n");
    let known = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
    for (answer, rest) in [(&*chunked, "0\r\n\r\n"), (&*chunked, ""), (known, "")] {
        let mut client = Raw::connect(proxy.address).await;
        client.write(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n")).await;
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(answer).await;
        assert!(!Head(client.head().await).has("transfer-encoding"));
        assert_eq!(client.exactly(4).await, b"half");
        upstream.write(rest).await;
        drop(upstream);
        let end = client.rest().await;
        if rest.is_empty() && answer == chunked {
            assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        } else {
            // A length tells by itself that something is missing.
            assert_eq!(end.expect("an orderly end"), b"");
        }
    }
}

#[tokio::test]
async fn neither_does_the_end_of_the_proxy_make_it_look_whole() {
    let node = Node::start().await;
    let config = node_mode(node.address, "shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"1ms\"");
    let mut proxy = Binary::start(&config).await;
    let mut client = Raw::connect(proxy.address).await;
    client.write(format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write(format!("HTTP/1.1 200 OK\r\n{CHUNKED}\r\n4\r\nhalf\r\n")).await;
    client.head().await;
    assert_eq!(client.exactly(4).await, b"half");
    proxy.signal(Signal::TERM);
    assert_eq!(client.rest().await.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    proxy.end().await;
}
