//! PROXY headers: whom a load balancer names is who the request is from.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use tokio::io::AsyncWriteExt as _;

use crate::{
    support::{
        Proxy, Raw,
        wire::{HOST, Head, Node, OK},
    },
    tls::{Authority, ask, door},
};

const TRUSTED: &str = "server.trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]";
const STRANGERS: &str = "server.trusted_proxies = [\"192.0.2.0/24\"]";
const LINE: &str = "PROXY TCP4 198.51.100.7 10.0.0.1 5000 443\r\n";

/// A request that says whom it is for.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: 8000-abc.example.test\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n";

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a short body").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, body].concat()
}

fn v4(source: [u8; 4], more: usize) -> Vec<u8> {
    let mut body = [&source[..], &[10, 0, 0, 1, 0, 80, 1, 187]].concat();
    body.resize(12 + more, 7);
    v2(0x21, 0x11, &body)
}

fn v6() -> Vec<u8> {
    let ip = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    v2(0x21, 0x21, &[&ip("2001:db8::7")[..], &ip("::1"), &[0, 80, 1, 187]].concat())
}

fn start(node: &Node, protocol: &str, trusted: &str) -> Proxy {
    node.proxy_with(&format!("server.proxy_protocol = \"{protocol}\"\n{trusted}"))
}

fn refused(reason: &str) -> String {
    format!("client_proxy_proxy_protocol_refused_total{{reason=\"{reason}\"}}")
}

#[tokio::test]
async fn the_sandbox_hears_of_the_client_that_was_named() {
    let node = Node::start().await;
    let mut upstream: Option<Raw> = None;
    // The last: a client whose own word is believed, being in a trusted network.
    for (header, want) in [
        (LINE.as_bytes().to_vec(), "198.51.100.7"),
        (b"PROXY TCP6 2001:db8::7 ::1 5000 443\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:198.51.100.7 ::1 5000 443\r\n".to_vec(), "198.51.100.7"),
        (v4([198, 51, 100, 7], 0), "198.51.100.7"),
        (v4([198, 51, 100, 7], 4000), "198.51.100.7"),
        (v6(), "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "203.0.113.9, 127.0.0.1"),
        (b"PROXY UNKNOWN what ever\r\n".to_vec(), "203.0.113.9, 127.0.0.1"),
        (v2(0x20, 0x00, b""), "203.0.113.9, 127.0.0.1"),
        (v2(0x21, 0x00, b"tlvs"), "203.0.113.9, 127.0.0.1"),
        (v4([10, 1, 2, 3], 0), "203.0.113.9, 10.1.2.3"),
    ] {
        for protocol in ["required", "optional"] {
            let proxy = start(&node, protocol, TRUSTED);
            // In one piece with the request, alone, and byte by byte.
            for pieces in [vec![[&*header, REQUEST.as_bytes()].concat()], vec![header.clone(), REQUEST.into()]] {
                let mut client = Raw::connect(proxy.address).await;
                for piece in pieces {
                    client.write(piece).await;
                    tokio::task::yield_now().await;
                }
                check(&node, &mut client, &mut upstream, want).await;
            }
            let mut client = Raw::connect(proxy.address).await;
            for byte in header.iter().take(300) {
                client.write([*byte]).await;
                tokio::task::yield_now().await;
            }
            client.write(&header[header.len().min(300)..]).await;
            client.write(REQUEST).await;
            check(&node, &mut client, &mut upstream, want).await;
            // Two proxies have two pools.
            upstream = None;
        }
    }
}

async fn check(node: &Node, client: &mut Raw, upstream: &mut Option<Raw>, want: &str) {
    if upstream.is_none() {
        *upstream = Some(node.accept().await);
    }
    let upstream = upstream.as_mut().expect("just put there");
    let seen = Head(upstream.head().await);
    assert_eq!((seen.line(), seen.one("x-forwarded-for")), ("GET / HTTP/1.1", want));
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn whoever_has_no_right_to_speak_or_nothing_to_say_is_refused_where_a_header_is_required() {
    let node = Node::start().await;
    for (trusted, bytes, reason) in [
        (TRUSTED, REQUEST.as_bytes().to_vec(), "missing"),
        (TRUSTED, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "missing"),
        (TRUSTED, format!("PROXY {}", "x".repeat(200)).into_bytes(), "malformed"),
        (TRUSTED, b"PROXY TCP4 nobody 10.0.0.1 1 2\r\n".to_vec(), "malformed"),
        (TRUSTED, v2(0x21, 0x11, &vec![0; 17_000]), "malformed"),
        (TRUSTED, v2(0x21, 0x11, &[0; 11]), "malformed"),
        (TRUSTED, v2(0x31, 0x11, &[0; 12]), "malformed"),
        (STRANGERS, [LINE, REQUEST].concat().into_bytes(), "untrusted"),
        (STRANGERS, REQUEST.as_bytes().to_vec(), "untrusted"),
    ] {
        let proxy = start(&node, "required", trusted);
        let mut client = Raw::connect(proxy.address).await;
        client.write(&bytes).await;
        client.is_left().await;
        proxy.metric_becomes(&refused(reason), 1.0).await;
        assert_eq!(proxy.metric("client_proxy_proxy_protocol_refused_total").await, 1.0);
        proxy.is_idle().await;
        assert!(node.nobody_knocks());
    }
}

#[tokio::test]
async fn where_a_header_is_optional_a_peer_may_speak_for_itself() {
    let node = Node::start().await;
    let proxy = start(&node, "optional", TRUSTED);
    let (mut client, mut upstream) = (Raw::connect(proxy.address).await, None);
    // Whatever it is that may yet become a header.
    for request in [REQUEST.to_owned(), REQUEST.replace("GET", "PROXY"), format!("\r\n{REQUEST}")] {
        for byte in request.bytes() {
            // One that is neither a header nor a request is left in the middle of it.
            if client.0.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if request.starts_with("PROXY") {
            client.is_left().await;
            client = Raw::connect(proxy.address).await;
            continue;
        }
        check(&node, &mut client, &mut upstream, "203.0.113.9, 127.0.0.1").await;
        client = Raw::connect(proxy.address).await;
    }
    // A stranger's header is what it looks like to HTTP.
    let proxy = start(&node, "optional", STRANGERS);
    let mut client = Raw::connect(proxy.address).await;
    client.write([LINE, REQUEST].concat()).await;
    assert_eq!(Head(client.head().await).status(), 400);
    let mut client = Raw::connect(proxy.address).await;
    client.write(REQUEST).await;
    check(&node, &mut client, &mut None, "127.0.0.1").await;
    assert_eq!(proxy.metric("client_proxy_proxy_protocol_refused_total").await, 0.0);
}

#[tokio::test]
async fn where_it_is_off_a_header_is_no_request() {
    let node = Node::start().await;
    let proxy = start(&node, "off", TRUSTED);
    let mut client = Raw::connect(proxy.address).await;
    client.write([LINE, REQUEST].concat()).await;
    assert_eq!(Head(client.head().await).status(), 400);
}

#[tokio::test]
async fn a_header_that_does_not_end_is_not_waited_for() {
    let node = Node::start().await;
    for protocol in ["required", "optional"] {
        let lines =
            format!("server.proxy_protocol = \"{protocol}\"\nserver.header_read_timeout = \"200ms\"\n{TRUSTED}");
        let proxy = node.proxy_with(&lines);
        for begun in [&b"PROX"[..], &v4([1, 2, 3, 4], 40)[..30], b""] {
            let mut client = Raw::connect(proxy.address).await;
            client.write(begun).await;
            client.is_left().await;
        }
        proxy.metric_becomes(&refused("timeout"), 2.0).await;
    }
}

#[tokio::test]
async fn it_comes_before_tls() {
    let (node, authority) = (Node::start().await, Authority::with_one());
    for protocol in ["required", "optional"] {
        let lines = format!("server.proxy_protocol = \"{protocol}\"\n{TRUSTED}\n{}", authority.config(&["a"]));
        let proxy = node.proxy_with(&lines);
        let mut socket = Raw::connect(door(&proxy)).await;
        socket.write(v4([198, 51, 100, 7], 20)).await;
        let mut client = authority.http1().shake(socket.0, HOST).await.expect("a handshake");
        let answered = tokio::spawn(async move { ask(&mut client, REQUEST).await });
        let mut upstream = node.accept().await;
        let seen = Head(upstream.head().await);
        assert_eq!((seen.one("x-forwarded-for"), seen.one("x-forwarded-proto")), ("198.51.100.7", "https"));
        upstream.write(OK).await;
        assert!(answered.await.expect("no panic").starts_with("HTTP/1.1 200"));
        let straight = authority.http1().try_connect(door(&proxy), HOST).await;
        assert_eq!(straight.is_ok(), protocol == "optional");
    }
}
