//! Requests hidden behind a promise: another protocol, a body that waits for 100, HTTP/2.

use crate::rows::{
    HIDDEN,
    Then::{Closes, Serves},
    play, row,
};

fn asks(path: &str, fields: &str, behind: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 8000-abc.example.test\r\n{fields}\r\n{behind}")
}

const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
const H2C: &str = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is pipelined behind a refused switch is a request of its own, and routed as one: to nobody here.
#[tokio::test]
async fn a_refused_switch_hides_nothing() {
    let other = HIDDEN.replace("abc", "other");
    let with_body = format!("{WEBSOCKET}Content-Length: 3\r\n");
    play([
        row("refused", asks("/", WEBSOCKET, &other), &[200, 502], Serves, &["GET /"]),
        row("with a body", asks("/", &with_body, &format!("abc{other}")), &[200, 502], Serves, &["GET / abc"]),
        row("h2c", asks("/", H2C, &other), &[200, 502], Serves, &["GET /"]),
        row("h2c and a preface", asks("/", H2C, PREFACE), &[200], Closes, &["GET /"]),
        row("TLS", asks("/", "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n", &other), &[200, 502], Serves, &["GET /"]),
        row("not nominated", asks("/", "Upgrade: websocket\r\n", &other), &[200, 502], Serves, &["GET /"]),
        row("HTTP/2 by a tunnel", asks("/switch", H2C, ""), &[502], Serves, &["GET /switch"]),
        row("a switch that nobody asked for", asks("/switch", "", &other), &[502, 502], Serves, &["GET /switch"]),
        row(
            "a switch of a request with a body",
            asks("/switch", &with_body, "abc"),
            &[502],
            Serves,
            &["GET /switch abc"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_body_that_waits_hides_nothing() {
    let expect = |length: usize, behind: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: 8000-abc.example.test\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n{behind}"
        )
    };
    let nobody = expect(3, "").replace("abc", "other") + "abc";
    let odd = expect(3, "abc").replace("100-continue", "a pony");
    play([
        row("it did not wait", expect(3, "abc"), &[100, 200], Serves, &["POST / abc"]),
        row("a request as its body", expect(HIDDEN.len(), HIDDEN), &[100, 200], Serves, &[BODY]),
        row(
            "a request behind it",
            expect(3, &format!("abc{}", HIDDEN.replace("abc", "other"))),
            &[100, 200, 502],
            Serves,
            &["POST / abc"],
        ),
        // Who waits to be told may leave it out, and send what is a request.
        row("refused, and sent all the same", nobody, &[502], Closes, &[]),
        row("another expectation", odd, &[200], Serves, &["POST / abc"]),
    ])
    .await;
}

const BODY: &str = "POST / GET /hidden HTTP/1.1\r\nHost: 8000-abc.example.test";

/// From the switch on it is the sandbox's protocol: what comes is carried to that sandbox, and to no other.
#[tokio::test]
async fn what_follows_an_accepted_switch_is_no_request_here() {
    use crate::support::wire::{HOST, Head, Node};
    let node = Node::start().await;
    let proxy = node.proxy();
    let other = HIDDEN.replace("abc", "other");
    let (mut client, mut upstream, seen) = node.exchange(&proxy, asks("/", WEBSOCKET, &other)).await;
    assert_eq!((seen.one("host"), seen.one("upgrade")), (HOST, "websocket"));
    upstream.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(Head(client.head().await).status(), 101);
    assert_eq!(upstream.head().await, other, "as it came, without a field of ours");
    upstream.write("bytes").await;
    assert_eq!(client.exactly(5).await, b"bytes");
    drop(client);
    assert_eq!(upstream.rest().await.expect("an orderly end"), b"");
    assert!(node.nobody_knocks(), "and the connection is used for nothing else");
}
