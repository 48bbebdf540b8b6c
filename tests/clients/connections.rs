//! Connections of clients: how long they may take, in which order they are served, how many there are.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use tokio::time::{Duration, timeout};

use crate::support::{
    Raw,
    wire::{HOST, Head, Node, OK, get},
};

/// Sends a request and answers it.
async fn once(client: &mut Raw, node: &Node, upstream: &mut Option<Raw>) {
    client.write(get("/")).await;
    if upstream.is_none() {
        *upstream = Some(node.accept().await);
    }
    let upstream = upstream.as_mut().expect("just put there");
    upstream.head().await;
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn a_head_that_comes_slowly_but_in_time_is_served() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    for byte in get("/slowly").bytes() {
        client.write([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(Head(node.accept().await.head().await).line(), "GET /slowly HTTP/1.1");
}

#[tokio::test]
async fn neither_time_ends_a_request_that_runs() {
    let node = Node::start().await;
    let proxy = node.proxy_with("server.header_read_timeout = \"100ms\"\nserver.idle_timeout = \"100ms\"");
    let (mut client, mut other_upstream) = (Raw::connect(proxy.address).await, None);
    client.write(get("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    // Another connection idles itself to death meanwhile, twice.
    for _ in 0..2 {
        let mut other = Raw::connect(proxy.address).await;
        once(&mut other, &node, &mut other_upstream).await;
        other.is_left().await;
    }
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab").await;
    client.head().await;
    for _ in 0..2 {
        let mut other = Raw::connect(proxy.address).await;
        once(&mut other, &node, &mut other_upstream).await;
        other.is_left().await;
    }
    upstream.write("cd").await;
    assert_eq!(client.exactly(4).await, b"abcd");
    client.is_left().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    let body = format!("POST /2 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc");
    let nobody = "GET /3 HTTP/1.1\r\nHost: 1-nobody.example.test\r\n\r\n";
    client.write([&*get("/1"), &body, nobody, &get("/4")].concat()).await;
    let mut upstream = node.accept().await;
    assert_eq!(Head(upstream.head().await).line(), "GET /1 HTTP/1.1");
    upstream.write(OK.replace("ok", "#1")).await;
    assert_eq!(client.message().await.text(), "#1");
    assert_eq!(Head(upstream.head().await).line(), "POST /2 HTTP/1.1");
    assert_eq!(upstream.exactly(3).await, b"abc");
    upstream.write(OK.replace("ok", "#2")).await;
    assert_eq!(client.message().await.text(), "#2");
    assert_eq!(client.message().await.refusal(), (502, "sandbox_not_found".into()));
    assert_eq!(Head(upstream.head().await).line(), "GET /4 HTTP/1.1");
    upstream.write(OK.replace("ok", "#4")).await;
    assert_eq!(client.message().await.text(), "#4");
    assert!(node.nobody_knocks(), "one after the other, on one connection");
}

#[tokio::test]
async fn a_client_that_wants_its_connection_closed_gets_that() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut upstream: Option<Raw> = None;
    for _ in 0..2 {
        let mut client = Raw::connect(proxy.address).await;
        client.write(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n")).await;
        if upstream.is_none() {
            upstream = Some(node.accept().await);
        }
        let pooled = upstream.as_mut().expect("just put there");
        pooled.head().await;
        pooled.write(OK).await;
        let answer = client.message().await;
        assert_eq!((answer.head.one("connection"), answer.text()), ("close", "ok".into()));
        assert_eq!(client.rest().await.expect("a clean end"), b"");
    }
    assert!(node.nobody_knocks(), "our connection to the node is another one");
}

#[tokio::test]
async fn own_errors_leave_the_connection_open() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let (mut client, mut upstream) = (Raw::connect(proxy.address).await, None);
    for request in [
        "GET / HTTP/1.1\r\nHost: nonsense\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 1-nobody.example.test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: nonsense\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        client.write(request).await;
        client.message().await.refusal();
        once(&mut client, &node, &mut upstream).await;
    }
    client.write("HEAD / HTTP/1.1\r\nHost: nonsense\r\n\r\n").await;
    let head = Head(client.head().await);
    assert_eq!((head.status(), head.has("proxy-status")), (400, true));
    assert_ne!(head.one("content-length"), "0");
    once(&mut client, &node, &mut upstream).await;
}

/// Many clients write head and body apart: what is refused before its body is there must not cost them the connection,
/// nor may it end without a word.
#[tokio::test]
async fn a_body_that_comes_behind_its_refusal_is_read_or_the_connection_s_end_is_told() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for host in ["nonsense", "1-nobody.example.test"] {
        let (mut client, mut upstream) = (Raw::connect(proxy.address).await, None);
        let post = |fields: &str| format!("POST / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n");
        for length in [3, 65_536] {
            client.write(post(&format!("Content-Length: {length}"))).await;
            let refused = client.message().await;
            refused.refusal();
            assert!(!refused.head.has("connection"), "{host} {length}: {:?}", refused.head);
            client.write(vec![b'x'; length]).await;
            once(&mut client, &node, &mut upstream).await;
        }
        for fields in
            ["Content-Length: 65537", "Transfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 3"]
        {
            let mut client = Raw::connect(proxy.address).await;
            client.write(post(fields)).await;
            let refused = client.message().await;
            refused.refusal();
            assert_eq!(refused.head.one("connection"), "close", "{host} {fields}");
            // At once: nobody waits for what need not come.
            let end = timeout(Duration::from_secs(4), client.rest()).await.expect("an end");
            assert_eq!(end.expect("an orderly end"), b"", "{host} {fields}");
        }
    }
    proxy.is_idle().await;
}

#[tokio::test]
async fn when_all_places_are_taken_the_next_client_waits_for_one() {
    let node = Node::start().await;
    let proxy = node.proxy_with("server.max_connections = 2");
    let (mut upstream, mut first, mut second) =
        (None, Raw::connect(proxy.address).await, Raw::connect(proxy.address).await);
    once(&mut first, &node, &mut upstream).await;
    once(&mut second, &node, &mut upstream).await;
    let mut third = Raw::connect(proxy.address).await;
    third.write(get("/third")).await;
    // The others are served several times before the third is seen at all.
    for _ in 0..10 {
        once(&mut first, &node, &mut upstream).await;
        once(&mut second, &node, &mut upstream).await;
    }
    assert!(node.nobody_knocks());
    assert_eq!(proxy.metric("client_proxy_connections{protocol=\"http1\"}").await, 2.0);
    drop(first);
    let upstream = upstream.as_mut().expect("it served");
    assert_eq!(Head(upstream.head().await).line(), "GET /third HTTP/1.1");
    upstream.write(OK).await;
    assert_eq!(third.message().await.text(), "ok");
}
