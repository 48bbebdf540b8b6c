//! Direct mode: the last hop is ours, and so is what guards it.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use crate::support::{
    Proxy, Raw, eventually,
    wire::{Head, Node, OK, direct_mode},
};

fn get(port: u16, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {port}-abc.example.test\r\n\r\n")
}

/// Configuration: one sandbox at `address`; whatever port is meant, `port` is dialled.
fn at(address: &str, port: u16, lines: &str) -> String {
    direct_mode(&format!("upstream.address = \"{{node}}:{port}\"\n{lines}"))
        .replace("\"127.0.0.1\"", &format!("{address:?}"))
}

#[tokio::test]
async fn each_exchange_with_a_user_port_has_a_connection_of_its_own() {
    let node = Node::start().await;
    let proxy = Proxy::start(&direct_mode(""));
    let mut client = Raw::connect(proxy.address).await;
    for _ in 0..3 {
        client.write(get(node.address.port(), "/x?y")).await;
        let mut upstream = node.accept().await;
        assert_eq!(Head(upstream.head().await).line(), "GET /x?y HTTP/1.1");
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        upstream.is_left().await;
    }
    assert_eq!(proxy.metric("client_proxy_upstream_connections").await, 0.0);
}

#[tokio::test]
async fn envds_connections_are_kept() {
    let node = Node::start().await;
    let proxy = Proxy::start(&at("127.0.0.1", node.address.port(), ""));
    let mut client = Raw::connect(proxy.address).await;
    client.write(get(49983, "/health")).await;
    let mut upstream = node.accept().await;
    for _ in 0..3 {
        upstream.head().await;
        upstream.write(OK).await;
        client.message().await;
        client.write(get(49983, "/health")).await;
    }
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn addresses_that_are_no_sandboxs_are_not_dialled() {
    let node = Node::start().await;
    let port = node.address.port();
    let strict = "upstream.allow_loopback = false";
    for address in ["127.0.0.1", "127.1.2.3", "localhost", "::1", "::ffff:127.0.0.1", "169.254.1.1", "fe80::1"] {
        let toml = at(address, port, "").replace("upstream.allow_loopback = true", strict);
        refuses(&Proxy::start(&toml), &node, address).await;
    }
    for address in ["169.254.169.254", "0.0.0.0", "::", "::ffff:169.254.169.254", "fd00:ec2::254", "224.0.0.1"] {
        for lines in ["", strict] {
            let toml = at(address, port, "");
            let toml = if lines.is_empty() { toml } else { toml.replace("upstream.allow_loopback = true", lines) };
            refuses(&Proxy::start(&toml), &node, address).await;
        }
    }
}

async fn refuses(proxy: &Proxy, node: &Node, address: &str) {
    let mut client = Raw::connect(proxy.address).await;
    client.write(get(8000, "/")).await;
    let answer = client.message().await;
    assert_eq!(answer.refusal(), (503, "node_unavailable".into()), "{address}");
    assert!(!answer.text().contains(address));
    assert!(node.nobody_knocks(), "{address}");
    let forbidden = proxy.metric("client_proxy_upstream_connections_total{result=\"forbidden\"}").await;
    assert!(
        forbidden >= 1.0 && forbidden == proxy.metric("client_proxy_upstream_connections_total").await,
        "{address}"
    );
}

#[tokio::test]
async fn envds_internal_routes_are_not_for_clients_however_they_are_spelled() {
    let node = Node::start().await;
    let proxy = Proxy::start(&at("127.0.0.1", node.address.port(), ""));
    let mut client = Raw::connect(proxy.address).await;
    for path in [
        "/init",
        "/init?x=y",
        "/init/",
        "/freeze",
        "/unfreeze",
        "/collapse",
        "/fsfreeze",
        "/fsthaw",
        "/upgrade",
        "//init",
        "///init//",
        "/./init",
        "/a/../init",
        "/../init",
        "/%69nit",
        "/%2569nit",
        "/%252569nit",
        "/INIT",
        "/%2e/init",
        "/a/%2e%2e/init",
        "/a%2f..%2finit",
        "/%2finit",
        "/init%2f",
        "/init;x=1",
        "/init%3bx=1",
        "http://49983-abc.example.test/init",
        "http://49983-abc.example.test//%69nit?x",
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            client.write(get(49983, path).replace("GET", method)).await;
            assert_eq!(client.message().await.refusal(), (404, "internal_route".into()), "{method} {path}");
        }
    }
    // By headers, too.
    client
        .write("GET /init HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 49983\r\n\r\n")
        .await;
    assert_eq!(client.message().await.refusal(), (404, "internal_route".into()));
    assert_eq!(proxy.metric("client_proxy_lookups_total").await, 0.0, "nobody was even looked for");
    assert!(node.nobody_knocks());
    // Other paths, and other ports.
    for request in [get(49983, "/health"), get(49983, "/files/init"), get(49983, "/initial"), get(8000, "/init")] {
        let mut client = Raw::connect(proxy.address).await;
        client.write(&request).await;
        let mut upstream = node.accept().await;
        assert_eq!(Head(upstream.head().await).line(), request.lines().next().expect("a line"));
    }
}

#[tokio::test]
async fn internal_routes_are_the_nodes_affair_in_node_mode() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    client.write(get(49983, "/init")).await;
    assert_eq!(Head(node.accept().await.head().await).line(), "GET /init HTTP/1.1");
}

#[tokio::test]
async fn a_sandbox_has_no_more_connections_than_it_may_until_a_body_ends() {
    let node = Node::start().await;
    let lines = "upstream.max_connections_per_sandbox = 1\ncatalog.static.other = \"127.0.0.1\"";
    let proxy = Proxy::start(&direct_mode(lines));
    let port = node.address.port();
    let refused = async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write(get(port, "/refused")).await;
        let answer = client.message().await;
        assert_eq!(answer.refusal(), (429, "too_many_connections".into()));
        assert!(answer.head.has("retry-after"));
        assert!(node.nobody_knocks());
    };
    let begins = async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write(get(port, "/")).await;
        let mut upstream = node.accept().await;
        upstream.head().await;
        refused().await;
        (client, upstream)
    };
    // Another sandbox's connections are its own affair.
    let taken = begins().await;
    let mut other = Raw::connect(proxy.address).await;
    other.write(get(port, "/").replace("-abc", "-other")).await;
    let mut elsewhere = node.accept().await;
    elsewhere.head().await;
    elsewhere.write(OK).await;
    assert_eq!(other.message().await.text(), "ok");
    drop(elsewhere);
    drop(taken);
    eventually("the place is free", async || proxy.metric("client_proxy_upstream_connections").await == 0.0).await;
    // Whole bodies.
    for (framing, parts) in [
        ("Content-Length: 2", ["o", "k"]),
        ("Transfer-Encoding: chunked", ["2\r\nok\r\n", "0\r\n\r\n"]),
        ("Transfer-Encoding: chunked", ["2\r\nok\r\n", "0\r\nX: y\r\n\r\n"]),
    ] {
        let (mut client, mut upstream) = begins().await;
        upstream.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{}", parts[0])).await;
        client.head().await;
        client.exactly(parts[0].len()).await;
        refused().await;
        upstream.write(parts[1]).await;
        client.read_until(if parts[1] == "k" { "k" } else { "0\r\n\r\n" }).await;
    }
    // No body at all; a body that is cut; a client that leaves; no answer.
    let (mut client, mut upstream) = begins().await;
    upstream.write("HTTP/1.1 204 No Content\r\n\r\n").await;
    client.head().await;
    let (mut client, mut upstream) = begins().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    client.head().await;
    refused().await;
    drop(upstream);
    client.is_left().await;
    for answered in [false, true] {
        let (mut client, mut upstream) = begins().await;
        if answered {
            upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
            client.head().await;
        }
        drop(client);
        upstream.is_left().await;
    }
    let (mut client, upstream) = begins().await;
    drop(upstream);
    assert_eq!(client.message().await.refusal().1, "upstream_failed");
    // Nobody listens.
    for _ in 0..2 {
        let mut client = Raw::connect(proxy.address).await;
        client.write(get(1, "/")).await;
        assert_eq!(client.message().await.refusal().1, "port_closed");
    }
    begins().await;
}
