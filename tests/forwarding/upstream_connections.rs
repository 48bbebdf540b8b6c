//! Connections to nodes: kept, found dead, never reached.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use crate::support::{
    self, Proxy, Raw, Server, answer,
    binary::Binary,
    wire::{BlackHole, HOST, Head, Node, OK, direct_mode, get, node_mode},
};

fn with_body(method: &str, body: &str) -> String {
    format!("{method} / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A proxy and its one connection to the node, pooled and idle.
async fn pooled() -> (Node, Proxy, Raw, Raw) {
    let node = Node::start().await;
    let proxy = node.proxy();
    let (mut client, mut upstream, _) = node.exchange(&proxy, get("/first")).await;
    upstream.write(OK).await;
    client.message().await;
    (node, proxy, client, upstream)
}

#[tokio::test]
async fn one_connection_serves_whatever_the_answers_look_like() {
    let (node, proxy, mut client, mut upstream) = pooled().await;
    for reply in [
        OK,
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: 1\r\n\r\n",
        "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
        OK,
    ] {
        for request in [get("/"), with_body("POST", "abc"), get("/").replace("GET", "HEAD")] {
            client.write(&request).await;
            upstream.head().await;
            if request.ends_with("abc") {
                assert_eq!(upstream.exactly(3).await, b"abc");
            }
            if request.starts_with("HEAD") {
                upstream.write(&reply[..reply.find("\r\n\r\n").expect("a head") + 4]).await;
                client.head().await;
            } else {
                upstream.write(reply).await;
                client.message().await;
            }
        }
    }
    assert!(node.nobody_knocks());
    assert_eq!(proxy.metric("client_proxy_upstream_connections").await, 1.0);
}

#[tokio::test]
async fn the_connection_used_last_is_used_first() {
    let (node, proxy, mut client, mut first) = pooled().await;
    let mut other_client = Raw::connect(proxy.address).await;
    client.write(get("/a")).await;
    first.head().await;
    other_client.write(get("/b")).await;
    let mut second = node.accept().await;
    second.head().await;
    second.write(OK).await;
    other_client.message().await;
    first.write(OK).await;
    client.message().await;
    for _ in 0..3 {
        other_client.write(get("/c")).await;
        assert_eq!(Head(first.head().await).line(), "GET /c HTTP/1.1");
        first.write(OK).await;
        other_client.message().await;
    }
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn a_pooled_connection_that_closed_meanwhile_is_replaced_for_any_request() {
    let (node, proxy, mut client, mut upstream) = pooled().await;
    for round in 0..60 {
        // The end is on its way before the request is.
        upstream.end(round % 2 == 1);
        let request = match round % 3 {
            0 => get("/"),
            1 => with_body("POST", "abc"),
            _ => with_body("POST", ""),
        };
        client.write(&request).await;
        upstream = node.accept().await;
        upstream.head().await;
        if request.ends_with("abc") {
            assert_eq!(upstream.exactly(3).await, b"abc");
        }
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
    }
    proxy.metric_becomes("client_proxy_upstream_connections", 1.0).await;
}

#[tokio::test]
async fn a_request_that_may_be_repeated_is_when_its_pooled_connection_dies_under_it() {
    for reset in [false, true] {
        for request in
            [get("/"), get("/").replace("GET", "HEAD"), with_body("PUT", "abc"), with_body("DELETE", "abc"), get("/?x")]
        {
            let (node, proxy, mut client, mut upstream) = pooled().await;
            client.write(&request).await;
            let seen = upstream.head().await;
            upstream.end(reset);
            let mut fresh = node.accept().await;
            assert_eq!(fresh.head().await, seen, "the same request");
            if request.ends_with("abc") {
                assert_eq!(fresh.exactly(3).await, b"abc");
            }
            fresh.write("HTTP/1.1 200 Again\r\nContent-Length: 0\r\n\r\n").await;
            assert_eq!(Head(client.head().await).line(), "HTTP/1.1 200 Again");
            assert_eq!(proxy.metric("client_proxy_retries_total{reason=\"stale_connection\"}").await, 1.0);
        }
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_repeated() {
    let big = "x".repeat(100_000);
    for reset in [false, true] {
        for request in [
            with_body("POST", "abc"),
            with_body("POST", ""),
            with_body("PATCH", "abc"),
            // It could be repeated, but not all of it was kept.
            with_body("PUT", &big),
        ] {
            let (node, _proxy, mut client, mut upstream) = pooled().await;
            client.write(&request).await;
            upstream.head().await;
            if request.ends_with(&big) {
                upstream.exactly(big.len()).await;
            }
            upstream.end(reset);
            assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
            assert!(node.nobody_knocks());
        }
    }
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_the_sandboxs_failure() {
    for reset in [false, true] {
        let node = Node::start().await;
        let proxy = node.proxy();
        let (mut client, upstream, _) = node.exchange(&proxy, get("/")).await;
        upstream.end(reset);
        let answer = client.message().await;
        assert_eq!(answer.refusal(), (502, "upstream_failed".into()));
        assert!(node.nobody_knocks(), "not repeated");
        assert!(!answer.text().contains("127.0.0.1"));
        proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_the_sandboxs_failure() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "\r\n\r\n\r\n\0\x01\x02\x03garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 9999 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno field\r\n\r\n",
    ] {
        let (node, _proxy, mut client, mut upstream) = pooled().await;
        client.write(get("/")).await;
        upstream.head().await;
        upstream.write(garbage).await;
        let answer = client.message().await;
        assert_eq!(answer.refusal(), (502, "upstream_failed".into()), "{garbage:?}");
        assert!(!answer.text().contains("OpenSSH"));
        assert!(node.nobody_knocks(), "it lives, so nothing is repeated");
        upstream.is_left().await;
        client.write(get("/next")).await;
        assert_eq!(Head(node.accept().await.head().await).line(), "GET /next HTTP/1.1");
    }
}

#[tokio::test]
async fn idle_connections_are_closed_when_their_time_is_over() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.idle_timeout = \"50ms\"");
    let (mut client, mut upstream, _) = node.exchange(&proxy, get("/")).await;
    upstream.write(OK).await;
    client.message().await;
    upstream.is_left().await;
    assert_eq!(proxy.metric("client_proxy_upstream_connections").await, 0.0);
}

#[tokio::test]
async fn a_node_that_does_not_listen_is_unavailable() {
    let free = Node::start().await.address;
    let proxy = Proxy::start(&node_mode(free, ""));
    let mut client = Raw::connect(proxy.address).await;
    client.write(get("/")).await;
    let answer = client.message().await;
    assert_eq!(answer.refusal(), (503, "node_unavailable".into()));
    assert!(answer.head.has("retry-after"));
    for internal in ["127.0.0.1", &free.port().to_string(), "refused"] {
        assert!(!answer.text().contains(internal));
    }
}

#[tokio::test]
async fn a_node_that_swallows_connections_costs_the_connect_timeout_and_no_more() {
    let hole = BlackHole::dig();
    let proxy = Proxy::start(&node_mode(hole.address, "upstream.connect_timeout = \"200ms\""));
    // The client of these tests waits 10 s: less than the system would take to give up.
    let answer = proxy.get(8000, "abc", "/").await;
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    assert!(proxy.metric("client_proxy_upstream_connections_total{result=\"timeout\"}").await >= 1.0);
    assert_eq!(proxy.metric("client_proxy_upstream_connections").await, 0.0);
}

#[tokio::test]
async fn host_names_of_nodes_are_resolved() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let toml = node_mode(upstream.address, "").replace("\"127.0.0.1\"", "\"localhost\"");
    let proxy = Proxy::start(&toml);
    for _ in 0..2 {
        assert_eq!(proxy.get(8000, "abc", "/").await.text(), "hello");
    }
    assert_eq!(upstream.connections(), 1);
    let proxy = Proxy::start(&toml.replace("localhost", "no-such-host.invalid"));
    assert_eq!(proxy.get(8000, "abc", "/").await.error(), "node_unavailable");
}

#[tokio::test]
async fn one_gateway_serves_all_sandboxes_by_its_own_name() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let toml = node_mode(upstream.address, "").replace("{node}", "localhost");
    let proxy = Proxy::start(&toml);
    assert_eq!(proxy.get(8000, "abc", "/").await.text(), "hello");
}

#[tokio::test]
async fn a_sandbox_that_does_not_begin_to_answer_in_time_is_told_so() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.response_header_timeout = \"100ms\"");
    let (mut client, mut upstream, _) = node.exchange(&proxy, get("/")).await;
    assert_eq!(client.message().await.refusal(), (504, "upstream_timeout".into()));
    upstream.is_left().await;
    // The body has all the time that it wants: here, as long as another request takes to fail.
    client.write(get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
    client.head().await;
    let mut other = Raw::connect(proxy.address).await;
    other.write(get("/")).await;
    assert_eq!(other.message().await.head.status(), 504);
    upstream.write("k").await;
    assert_eq!(client.exactly(2).await, b"ok");
}

#[tokio::test]
async fn the_time_to_begin_an_answer_starts_when_the_upload_is_over() {
    let node = Node::start().await;
    let limit = "upstream.response_header_timeout = \"100ms\"";
    let direct = direct_mode(limit) + "cache.ttl = \"10ms\"\n";
    for (proxy, port) in [(node.proxy_with(limit), 8000), (Proxy::start(&direct), node.address.port())] {
        for (framing, first, rest) in
            [("Content-Length: 4", "ab", "cd"), ("Transfer-Encoding: chunked", "2\r\nab\r\n", "2\r\ncd\r\n0\r\n\r\n")]
        {
            let host = HOST.replace("8000", &port.to_string());
            let mut client = Raw::connect(proxy.address).await;
            client.write(format!("POST / HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{first}")).await;
            let mut upstream = node.accept().await;
            upstream.head().await;
            assert_eq!(upstream.exactly(first.len()).await, first.as_bytes());
            let mut other = Raw::connect(proxy.address).await;
            other.write(get("/").replace(HOST, &host)).await;
            assert_eq!(other.message().await.refusal(), (504, "upstream_timeout".into()));
            drop(node.accept().await);
            client.write(rest).await;
            assert_eq!(upstream.exactly(rest.len()).await, rest.as_bytes());
            upstream.write(OK).await;
            assert_eq!(client.message().await.text(), "ok");
            // And then it runs.
            client.write(format!("POST / HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{first}{rest}")).await;
            assert_eq!(client.message().await.refusal(), (504, "upstream_timeout".into()));
            if port != 8000 {
                drop(node.accept().await);
            }
        }
    }
}

#[tokio::test]
async fn variables_that_name_proxies_are_ignored() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let trap = Node::start().await;
    let url = format!("http://{}", trap.address);
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let environment: Vec<(&str, &str)> = names.into_iter().map(|name| (name, &*url)).collect();
    let port = upstream.address.port().to_string();
    for toml in [node_mode(upstream.address, ""), direct_mode("")] {
        let proxy = Binary::start_in(&toml, &environment).await;
        let request = support::request("GET", port.parse().expect("a port"), "abc", "/");
        let answer = support::send(proxy.address, request.body(http_body_util::Full::default()).expect("one")).await;
        assert_eq!(answer.text(), "hello");
    }
    assert!(trap.nobody_knocks());
}

#[tokio::test]
async fn an_upstream_that_answers_and_leaves_before_it_has_the_request_is_an_answer_or_a_failure_never_a_silence() {
    const TRIES: usize = 1_000;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // A thread of its own, so that it is often faster than the proxy; unread bytes make its close a reset.
    let hasty = std::thread::spawn(move || {
        for socket in listener.incoming().take(TRIES) {
            let _ = std::io::Write::write_all(&mut socket.expect("a connection"), OK.as_bytes());
        }
    });
    let proxy = Proxy::start(&direct_mode(""));
    for _ in 0..TRIES {
        let mut client = Raw::connect(proxy.address).await;
        client.write(get("/").replace(HOST, &format!("{}-abc.example.test", address.port()))).await;
        let status = client.message().await.head.status();
        assert!([200, 502].contains(&status), "{status}");
    }
    hasty.join().expect("no panic");
}
