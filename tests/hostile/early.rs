//! Answers that come while the client still sends: it reads the whole of them and then an orderly end, although it
//! had written all of its 50 MB first.

use tokio::{task::JoinSet, time::timeout};

use crate::{
    frames::{DATA, END_HEADERS, END_STREAM, Fate, Frames, HEADERS, RST_STREAM, block, frame},
    support::{
        PATIENCE, Proxy, Raw, Server, answer,
        wire::{HOST, Node, node_mode},
    },
};

const SIZE: usize = 50 << 20;
const DOMAINS: &str = "server.domains = [\"example.test\"]\n";

/// Host and answer: three of the proxy's own, and one of the sandbox's.
const EARLY: [(&str, u16); 4] =
    [("nonsense", 400), ("8000-abc.other.test", 421), ("8000-nobody.example.test", 502), (HOST, 413)];

/// A sandbox that answers a head and reads no more.
async fn world() -> (JoinSet<()>, Proxy) {
    let node = Node::start().await;
    let proxy = Proxy::start(&node_mode(node.address, DOMAINS));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = Vec::new();
        // As long as the test: nobody waits longer for a connection than for anything else.
        loop {
            let mut socket = node.accept().await;
            socket.head().await;
            socket.write("HTTP/1.1 413 Too Much\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!").await;
            open.push(socket);
        }
    });
    (tasks, proxy)
}

#[tokio::test]
async fn whoever_writes_everything_first_reads_the_whole_error_and_an_orderly_end() {
    let (_sandbox, proxy) = world().await;
    let body = vec![b'x'; SIZE];
    let chunk = [format!("{SIZE:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let length = format!("Content-Length: {SIZE}");
    for (framing, body) in [(&*length, &body), ("Transfer-Encoding: chunked", &chunk)] {
        for (host, status) in EARLY {
            let mut client = Raw::connect(proxy.address).await;
            client.write(format!("POST / HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n")).await;
            timeout(PATIENCE, client.write(body)).await.expect("a proxy that reads on");
            let message = client.message().await;
            assert_eq!(message.head.status(), status, "{framing}");
            assert!(!message.body.is_empty());
            // It was told that nobody reads more, or else all of it was read.
            if message.head.has("connection") {
                assert_eq!(client.rest().await.expect("an orderly end"), b"", "{host} {framing}");
            }
        }
    }
    proxy.is_idle().await;
}

/// Such a close resets the connection, and the upload breaks off before the answer has been looked for.
#[tokio::test]
async fn an_answer_of_a_sandbox_that_closes_at_once_is_passed_on() {
    // It reads no more of a body than came with the head.
    let sandbox = Server::start(async |_| answer(413, "too large")).await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let body = vec![b'x'; SIZE];
    for _ in 0..10 {
        let mut client = Raw::connect(proxy.address).await;
        client.write(format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {SIZE}\r\n\r\n")).await;
        timeout(PATIENCE, client.write(&body)).await.expect("a proxy that reads on");
        let message = client.message().await;
        assert_eq!((message.head.status(), message.text()), (413, "too large".into()));
        assert_eq!(client.rest().await.expect("an orderly end"), b"");
    }
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_client_that_leaves_after_an_early_answer_leaves_nothing_behind() {
    let (_sandbox, proxy) = world().await;
    for (host, status) in EARLY {
        for with_reset in [true, false] {
            let mut client = Raw::connect(proxy.address).await;
            client.write(format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\nxxx")).await;
            assert_eq!(client.message().await.head.status(), status);
            client.end(with_reset);
        }
    }
    proxy.is_idle().await;
}

#[tokio::test]
async fn over_http_2_the_upload_s_stream_ends_and_the_others_go_on() {
    let (_sandbox, proxy) = world().await;
    let mut client = Frames::connect(proxy.address).await;
    client.may_send().await;
    for ((host, status), stream) in EARLY.into_iter().zip([1, 3, 5, 7]) {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", host), (":path", "/")];
        client.send(frame(HEADERS, END_HEADERS, stream, block(fields))).await;
        // All that a client may send before it is allowed more.
        for _ in 0..16 {
            client.send(frame(DATA, 0, stream, [b'x'; 16_000])).await;
        }
        assert_eq!(client.fate(stream).await, Fate::Answer(status), "{host}");
    }
    client.get(9, HOST, "/after").await;
    assert_eq!(client.fate(9).await, Fate::Answer(413));
}

#[tokio::test]
async fn over_http2_an_answer_of_ours_is_not_followed_by_a_reset_while_the_client_sends() {
    let (_sandbox, proxy) = world().await;
    for (stream, host) in (1..).step_by(2).zip(["nonsense", "8000-abc.other.test", "8000-nobody.example.test"]) {
        let mut client = Frames::connect(proxy.address).await;
        client.may_send().await;
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", host), (":path", "/")];
        client.send(frame(HEADERS, END_HEADERS, stream, block(fields))).await;
        client.send(frame(DATA, 0, stream, [7; 1000])).await;
        let answered = client.fate(stream).await;
        assert!(matches!(answered, Fate::Answer(400..=502)), "{answered:?}");
        // It goes on, and ends when it likes: only then is there anything more to say about the stream.
        for _ in 0..30 {
            client.send(frame(DATA, 0, stream, [7; 1000])).await;
        }
        client.send(frame(DATA, END_STREAM, stream, [])).await;
        client.get(stream + 2, HOST, "/").await;
        let mut seen = Vec::new();
        while let Some(frame) = client.next().await {
            seen.push((frame.kind, frame.stream));
            if frame.kind == HEADERS && frame.stream == stream + 2 {
                break;
            }
        }
        assert!(!seen.contains(&(RST_STREAM, stream)), "{seen:?}");
    }
}
