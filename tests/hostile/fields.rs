//! Header fields (RFC 9112 §5): their form, their number, their size, and which of them `Connection` takes away.

use crate::{
    rows::{
        HIDDEN,
        Then::{Closes, Serves},
        get_with, play, post, row,
    },
    sandbox::Sandbox,
    support::{
        Proxy, Raw,
        wire::{HOST, Head, Node, OK, node_mode},
    },
};

fn field(bytes: &[u8]) -> Vec<u8> {
    [format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n").as_bytes(), bytes, b"\r\n\r\n", HIDDEN.as_bytes()].concat()
}

#[tokio::test]
async fn a_field_is_a_token_a_colon_and_a_value() {
    play([
        row("no colon", field(b"X-A"), &[400], Closes, &[]),
        row("no name", field(b": a"), &[400], Closes, &[]),
        row("a blank before the colon", field(b"X-A : a"), &[400], Closes, &[]),
        row("a blank in the name", field(b"X A: a"), &[400], Closes, &[]),
        row("a blank before the name", field(b" X-A: a"), &[400], Closes, &[]),
        row("a folded line", field(b"X-A: a\r\n b"), &[400], Closes, &[]),
        row("a line folded by a tab", field(b"X-A: a\r\n\tb"), &[400], Closes, &[]),
        row("a bare CR in a value", field(b"X-A: a\rb"), &[400], Closes, &[]),
        row("a bare CR, and a length", field(b"X-A: a\rContent-Length: 5"), &[400], Closes, &[]),
        row("a bare CR in a name", field(b"X\r-A: a"), &[400], Closes, &[]),
        row("two CRs", field(b"X-A: a\r"), &[400], Closes, &[]),
        row("a NUL in a value", field(b"X-A: a\0b"), &[400], Closes, &[]),
        row("a NUL in a name", field(b"X-\0A: a"), &[400], Closes, &[]),
        row("a DEL in a value", field(b"X-A: a\x7fb"), &[400], Closes, &[]),
        row("an ESC in a value", field(b"X-A: a\x1bb"), &[400], Closes, &[]),
        row("a byte beyond ASCII in a name", field(b"X-\xe4: a"), &[400], Closes, &[]),
        row("parentheses in a name", field(b"X(A): a"), &[400], Closes, &[]),
        row("a slash in a name", field(b"X/A: a"), &[400], Closes, &[]),
        row("quotes around a name", field(b"\"X-A\": a"), &[400], Closes, &[]),
        row("an at sign in a name", field(b"X@A: a"), &[400], Closes, &[]),
    ])
    .await;
}

#[tokio::test]
async fn a_head_is_bounded_in_fields_and_bytes() {
    let many = |count| get_with(&"X-A: 1\r\n".repeat(count));
    let large = |count| get_with(&format!("X-A: {}\r\n", "a".repeat(count)));
    let endless = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-A: {}", "a".repeat(1 << 20));
    play([
        row("as many fields as there may be", many(99), &[200], Serves, &["GET /"]),
        row("one more", many(100), &[431], Closes, &[]),
        row("ten thousand", many(10_000), &[431], Closes, &[]),
        row("a large one", large(100 << 10), &[200], Serves, &["GET /"]),
        row("one of 128 KiB", large(128 << 10), &[431], Closes, &[]),
        row("one of a megabyte", large(1 << 20), &[431], Closes, &[]),
        row("a head without an end", endless, &[431], Closes, &[]),
    ])
    .await;
}

/// Bare LF ends a line (RFC 9112 §2.2 allows that); upstream it is CRLF.
#[tokio::test]
async fn a_bare_lf_ends_a_line_here_and_is_none_upstream() {
    let bare = format!("POST / HTTP/1.1\nHost: {HOST}\nContent-Length: 3\n\nabc");
    let mixed = format!("POST / HTTP/1.1\r\nHost: {HOST}\nX-A: b\r\nContent-Length: 3\n\r\nabc");
    play([
        row("everywhere", bare, &[200], Serves, &["POST / abc"]),
        row("here and there", mixed, &[200], Serves, &["POST / abc"]),
    ])
    .await;
}

/// RFC 9110 §7.6.1: what would change the message's end or its sender's own words cannot be nominated away.
#[tokio::test]
async fn what_connection_nominates_changes_neither_framing_nor_host() {
    let chunks = "3\r\nabc\r\n0\r\n\r\n";
    play([
        row(
            "Content-Length",
            post("Connection: Content-Length\r\nContent-Length: 3\r\n", "abc"),
            &[200],
            Serves,
            &["POST / abc"],
        ),
        row(
            "both",
            post("Connection: keep-alive, content-length, close\r\nContent-Length: 3\r\n", "abc"),
            &[200],
            Closes,
            &["POST / abc"],
        ),
        row(
            "Transfer-Encoding",
            post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", chunks),
            &[200],
            Serves,
            &["POST / abc"],
        ),
        row("Host", post("Connection: Host\r\n", ""), &[200], Serves, &["POST /"]),
        row(
            "a GET's length",
            get_with("Connection: Content-Length\r\nContent-Length: 0\r\n"),
            &[200],
            Serves,
            &["GET /"],
        ),
        row(
            "Expect",
            post("Connection: Expect\r\nExpect: 100-continue\r\nContent-Length: 3\r\n", "abc"),
            &[100, 200],
            Serves,
            &["POST / abc"],
        ),
        row("no tokens", post("Connection: \x0b, a b, \"x\", ,,\r\n", ""), &[400], Closes, &[]),
        row(
            "ten thousand names",
            post(&format!("Connection: {}\r\n", "x-a, ".repeat(10_000)), ""),
            &[200],
            Serves,
            &["POST /"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_connection_nominates_forges_nothing() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let nominate = "Connection: X-Forwarded-For, X-Request-Id, X-Real-IP, E2b-Sandbox-Id, E2b-Traffic-Access-Token\r\n\
                    X-Forwarded-For: 1.2.3.4\r\nX-Request-Id: mine\r\nE2b-Traffic-Access-Token: t\r\n\
                    X-Access-Token: u\r\n\
                    X-Access-Token: v\r\n";
    let (mut client, mut upstream, seen) = node.exchange(&proxy, get_with(nominate)).await;
    assert_eq!((seen.one("x-forwarded-for"), seen.one("x-request-id")), ("127.0.0.1", "mine"));
    assert_eq!((seen.has("e2b-traffic-access-token"), seen.all("x-access-token")), (false, vec!["u", "v"]));
    upstream.write(OK).await;
    client.message().await;
    // Where they route, they cannot be taken away either.
    let shared = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: E2b-Sandbox-Id, E2b-Sandbox-Port\r\n\
                  E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 8000\r\n\r\n";
    client.write(shared).await;
    assert_eq!(Head(upstream.head().await).line(), "GET / HTTP/1.1");
}

#[tokio::test]
async fn a_refused_head_is_counted_and_nothing_is_left_of_it() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    for _ in 0..100 {
        let mut client = Raw::connect(proxy.address).await;
        client.write(field(b"X-A : a")).await;
        assert!(client.rest().await.expect("an orderly end").starts_with(b"HTTP/1.1 400 "));
    }
    proxy.metric_becomes("client_proxy_requests_total", 100.0).await;
    proxy.is_idle_upstream_too().await;
}
