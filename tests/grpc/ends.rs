//! How exchanges end before their time, on either side; and which of them are sent again.

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::{
    client::{Client, GRPC, body, head, post},
    frames::{
        CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, INTERNAL_ERROR, NO_ERROR, OK, PING, Peer, REFUSED_STREAM,
        RST_STREAM, SETTINGS, WINDOW_UPDATE,
    },
    support::{
        PATIENCE, Proxy, Raw, Server, answer,
        wire::{HOST, Node, direct_mode},
        within_a_second,
    },
};

const H2C: &str = "upstream.protocol = \"h2c\"";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

fn posted(text: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

async fn asked(proxy: &Proxy, request: impl AsRef<[u8]>) -> Raw {
    let mut client = Raw::connect(proxy.address).await;
    client.write(request).await;
    client
}

/// A proxy and its one connection to the node, which has served before.
async fn served() -> (Node, Proxy, Peer) {
    let node = Node::start().await;
    let proxy = node.proxy_with(H2C);
    let mut client = asked(&proxy, get("/first")).await;
    let mut upstream = Peer::accept(&node).await;
    let stream = upstream.headers().await;
    upstream.answer(stream, b"ok").await;
    client.message().await;
    (node, proxy, upstream)
}

#[tokio::test]
async fn what_a_goaway_leaves_out_is_sent_on_another_connection_and_nothing_else_is() {
    let (node, proxy, mut old) = served().await;
    let mut within = asked(&proxy, posted("one")).await;
    let first = old.headers().await;
    assert_eq!(old.next_of(DATA).await.payload, b"one");
    let mut beyond = asked(&proxy, posted("two")).await;
    let second = old.headers().await;
    assert_eq!(old.next_of(DATA).await.payload, b"two");
    assert!(second > first);
    old.go_away(first).await;
    let mut new = Peer::accept(&node).await;
    let stream = new.headers().await;
    assert_eq!(new.next_of(DATA).await.payload, b"two");
    new.answer(stream, b"from the new").await;
    assert_eq!(beyond.message().await.text(), "from the new");
    // The old one takes no more, and ends what it has.
    let mut next = asked(&proxy, get("/next")).await;
    let stream = new.headers().await;
    new.answer(stream, b"next").await;
    assert_eq!(next.message().await.text(), "next");
    old.answer(first, b"from the old").await;
    assert_eq!(within.message().await.text(), "from the old");
    assert!(node.nobody_knocks());
    assert_eq!(proxy.count("client_proxy_retries_total{reason=\"refused_stream\"}").await, 1);
    assert_eq!(proxy.count("client_proxy_upstream_connections_total{result=\"ok\"}").await, 2);
    proxy.metric_becomes("client_proxy_upstream_connections", 1.0).await;
}

#[tokio::test]
async fn a_connection_that_leaves_takes_no_request_that_it_has_not() {
    let (node, proxy, mut old) = served().await;
    let mut within = asked(&proxy, posted("one")).await;
    let first = old.headers().await;
    old.go_away(first).await;
    old.write(HEADERS, END_HEADERS, first, OK).await;
    // What came before that head is known as well.
    within.head().await;
    let mut next = asked(&proxy, posted("two")).await;
    let mut new = Peer::accept(&node).await;
    let stream = new.headers().await;
    assert_eq!(new.next_of(DATA).await.payload, b"two");
    new.answer(stream, b"from the new").await;
    assert_eq!(next.message().await.text(), "from the new");
    old.write(DATA, END_STREAM, first, b"from the old").await;
    assert_eq!(within.chunk().await.as_deref(), Some(&b"from the old"[..]));
    assert!(within.chunk().await.is_none());
}

#[tokio::test]
async fn an_upload_that_its_client_resets_is_never_a_whole_one() {
    for code in [h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
        let (_node, proxy, mut upstream) = served().await;
        for answered in [false, true] {
            let mut client = Client::connect(proxy.address).await;
            let (response, mut upload) = client.send(post(GRPC), false).await;
            upload.send_data(Bytes::from_static(b"half"), false).expect("a stream");
            let stream = upstream.headers().await;
            assert_eq!(upstream.next_of(DATA).await.payload, b"half");
            if answered {
                upstream.write(HEADERS, END_HEADERS, stream, OK).await;
                head(response).await;
            }
            upload.send_reset(code);
            let frame = upstream.next_but(&[SETTINGS, PING, WINDOW_UPDATE]).await;
            assert_eq!((frame.kind, frame.stream), (RST_STREAM, stream), "{code} {answered}");
        }
    }
}

#[tokio::test]
async fn a_stream_within_a_goaway_that_ends_unanswered_is_not_sent_again() {
    let (node, proxy, mut upstream) = served().await;
    let mut client = asked(&proxy, posted("once")).await;
    let stream = upstream.headers().await;
    assert_eq!(upstream.next_of(DATA).await.payload, b"once");
    upstream.go_away(stream).await;
    drop(upstream);
    assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_elsewhere_and_not_for_ever() {
    let (node, proxy, mut upstream) = served().await;
    let mut client = asked(&proxy, posted("again")).await;
    for sending in 1..=4 {
        let stream = upstream.headers().await;
        assert_eq!(upstream.next_of(DATA).await.payload, b"again");
        upstream.reset(stream, REFUSED_STREAM).await;
        if sending < 4 {
            upstream = Peer::accept(&node).await;
        }
    }
    assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
    assert!(node.nobody_knocks());
    assert_eq!(proxy.count("client_proxy_retries_total").await, 3);
}

#[tokio::test]
async fn a_refused_stream_whose_body_is_not_kept_is_not_sent_again() {
    let (node, proxy, mut upstream) = served().await;
    let mut client = asked(&proxy, posted(&"x".repeat(65 * 1024 - 1))).await;
    let stream = upstream.headers().await;
    let mut sent = 0;
    while sent < 65535 {
        sent += upstream.next_of(DATA).await.payload.len();
    }
    upstream.reset(stream, REFUSED_STREAM).await;
    assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn a_stream_that_was_reset_for_another_reason_is_not_sent_again() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL] {
        let (node, proxy, mut upstream) = served().await;
        let mut client = asked(&proxy, get("/")).await;
        let stream = upstream.headers().await;
        upstream.reset(stream, code).await;
        assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()), "{code}");
        assert!(node.nobody_knocks());
    }
}

#[tokio::test]
async fn an_idempotent_request_is_sent_again_when_its_connection_was_dead_and_another_one_is_not() {
    for (request, again) in [(get("/"), true), (posted("once"), false)] {
        let (node, proxy, mut upstream) = served().await;
        let mut client = asked(&proxy, request).await;
        upstream.headers().await;
        upstream.socket.reset();
        if again {
            let mut upstream = Peer::accept(&node).await;
            let stream = upstream.headers().await;
            upstream.answer(stream, b"alive").await;
            assert_eq!(client.message().await.text(), "alive");
            assert_eq!(proxy.count("client_proxy_retries_total{reason=\"stale_connection\"}").await, 1);
        } else {
            assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
            assert!(node.nobody_knocks());
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_has_no_end() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL, REFUSED_STREAM] {
        let (_node, proxy, mut upstream) = served().await;
        let mut client = asked(&proxy, get("/")).await;
        let stream = upstream.headers().await;
        upstream.write(HEADERS, END_HEADERS, stream, OK).await;
        upstream.write(DATA, 0, stream, b"half").await;
        assert_eq!(client.head().await.split("\r\n").next(), Some("HTTP/1.1 200 OK"));
        assert_eq!(client.chunk().await.as_deref(), Some(&b"half"[..]));
        upstream.reset(stream, code).await;
        let rest = client.rest().await.unwrap_or_default();
        assert!(rest.is_empty(), "{code}: {:?}", String::from_utf8_lossy(&rest));

        let mut client = Client::connect(proxy.address).await;
        let (response, _) = client.send(post(GRPC), true).await;
        let (other, _) = client.send(post(GRPC), true).await;
        let stream = upstream.headers().await;
        let second = upstream.headers().await;
        upstream.write(HEADERS, END_HEADERS, stream, OK).await;
        upstream.write(DATA, 0, stream, b"half").await;
        let response = head(response).await;
        upstream.reset(stream, code).await;
        let error = body(response.into_body()).await.expect_err("an unfinished answer");
        // A client that was told "refused" would send it again.
        assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR), "{code}");
        upstream.answer(second, b"the other").await;
        assert_eq!(body(head(other).await.into_body()).await.expect("all of it").0, b"the other");
    }
}

#[tokio::test]
async fn when_a_client_leaves_its_stream_is_reset_within_a_second_and_the_others_go_on() {
    let (_node, proxy, mut upstream) = served().await;
    let mut other = asked(&proxy, get("/other")).await;
    let others = upstream.headers().await;
    for answered in [false, true] {
        within_a_second("the stream of an HTTP/1.1 client", async || {
            let mut client = asked(&proxy, get("/")).await;
            let stream = upstream.headers().await;
            if answered {
                upstream.write(HEADERS, END_HEADERS, stream, OK).await;
                client.head().await;
            }
            let start = Instant::now();
            drop(client);
            assert_eq!(upstream.is_reset().await, (stream, CANCEL));
            start.elapsed()
        })
        .await;
        within_a_second("the stream of an HTTP/2 client", async || {
            let mut client = Client::connect(proxy.address).await;
            // It sends more than anybody takes.
            let (response, mut upload) = client.send(post(GRPC), false).await;
            upload.send_data(Bytes::from(vec![7; 1 << 20]), false).expect("a stream");
            let stream = upstream.headers().await;
            if answered {
                upstream.write(HEADERS, END_HEADERS, stream, OK).await;
                let _answer = head(response).await;
            }
            let start = Instant::now();
            upload.send_reset(h2::Reason::CANCEL);
            assert_eq!(upstream.is_reset().await, (stream, CANCEL));
            start.elapsed()
        })
        .await;
    }
    upstream.answer(others, b"still there").await;
    assert_eq!(other.message().await.text(), "still there");
}

#[tokio::test]
async fn an_upload_that_is_over_for_the_sandbox_is_over() {
    let (_node, proxy, mut upstream) = served().await;
    let mut client = Client::connect(proxy.address).await;
    let (response, _upload) = client.send(post(GRPC), false).await;
    let stream = upstream.headers().await;
    upstream.answer(stream, b"enough").await;
    assert_eq!(body(head(response).await.into_body()).await.expect("all of it").0, b"enough");
    // The rest is not waited for.
    assert_eq!(upstream.is_reset().await, (stream, CANCEL));
}

#[tokio::test]
async fn an_upstream_that_speaks_only_http_1_1_has_failed() {
    let server = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Proxy::start(&direct_mode(H2C));
    for _ in 0..3 {
        let answer = timeout(PATIENCE, proxy.get(server.address.port(), "abc", "/")).await.expect("an answer in time");
        assert_eq!((answer.status.as_u16(), answer.error()), (502, "upstream_failed".into()));
    }
    assert_eq!(server.requests(), 0);
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn an_upstream_that_answers_nonsense_has_failed() {
    let node = Node::start().await;
    let proxy = node.proxy_with(H2C);
    for says in ["HTT", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\0\0\0\0\0\0\0\0\0"] {
        let mut client = asked(&proxy, get("/")).await;
        let mut upstream = node.accept().await;
        upstream.write(says).await;
        // To drop it would reset it, with what it said: the preface is unread.
        upstream.half_close().await;
        assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()), "{says:?}");
    }
    drop(node);
    let mut client = asked(&proxy, get("/")).await;
    assert_eq!(client.message().await.refusal(), (503, "node_unavailable".into()));
    assert_eq!(proxy.count("client_proxy_upstream_connections_total{result=\"refused\"}").await, 1);
}
