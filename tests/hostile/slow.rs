//! Clients that begin and do not go on: nobody waits longer for them than for a head. And those that are only many.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use crate::{
    frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, Fate, Frames, HEADERS, PREFACE, block, frame},
    sandbox::Sandbox,
    support::{
        Proxy, Raw, many_descriptors,
        wire::{HOST, Head, Node, OK, get, node_mode},
    },
};

const HEAD: Duration = Duration::from_millis(400);
/// The time for a head is the only one that passes.
const STRICT: &str = "server.header_read_timeout = \"400ms\"\nserver.idle_timeout = \"60s\"";

fn request(method: &str) -> Vec<u8> {
    block([(":method", method), (":scheme", "http"), (":authority", HOST), (":path", "/")])
}

/// The proxy ends it, and not before its time.
async fn is_ended(client: &mut Raw, start: Instant, what: &str) {
    client.is_left().await;
    let after = start.elapsed();
    assert!(after >= HEAD, "{what}: {after:?}");
}

#[tokio::test]
async fn who_begins_and_does_not_go_on_is_ended() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, STRICT));
    let settings = frame(4, 0, 0, []);
    let part = |bytes: &[u8]| [PREFACE, &settings, bytes].concat();
    let head = frame(HEADERS, END_HEADERS | END_STREAM, 1, request("GET"));
    for (what, sent) in [
        ("nothing", Vec::new()),
        ("half a preface", PREFACE[..10].to_vec()),
        ("a preface", PREFACE.to_vec()),
        ("a preface and SETTINGS", part(b"")),
        ("half a HEADERS frame", part(&head[..20])),
        ("the head of a HEADERS frame", part(&head[..9])),
        ("a header block without its end", part(&frame(HEADERS, END_STREAM, 1, request("GET")))),
        ("half a head of HTTP/1.1", get("/").as_bytes()[..20].to_vec()),
    ] {
        let start = Instant::now();
        let mut client = Raw::connect(proxy.address).await;
        client.write(&sent).await;
        is_ended(&mut client, start, what).await;
    }
    proxy.is_idle().await;
    assert_eq!(sandbox.takes("all").await, [""; 0]);
}

#[tokio::test]
async fn a_header_block_without_end_is_no_longer_waited_for_beside_other_streams() {
    let node = Node::start().await;
    let proxy = node.proxy_with(STRICT);
    let mut client = Frames::connect(proxy.address).await;
    client.get(1, HOST, "/open").await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    let start = Instant::now();
    client.send(frame(HEADERS, END_STREAM, 3, request("GET"))).await;
    is_ended(&mut client.0, start, "an open stream").await;
    upstream.is_left().await;
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_preface_and_a_head_byte_by_byte_are_ended_all_the_same() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, STRICT));
    let settings = [PREFACE, &frame(4, 0, 0, [])].concat();
    let endless = [frame(HEADERS, END_STREAM, 1, request("GET")), frame(CONTINUATION, 0, 1, []).repeat(50)].concat();
    for (at_once, slowly) in [(Vec::new(), PREFACE.to_vec()), (settings, endless)] {
        let start = Instant::now();
        let client = Raw::connect(proxy.address).await;
        let (mut read, mut write) = client.0.into_split();
        write.write_all(&at_once).await.expect("a proxy that reads");
        let drip = async {
            for (byte, n) in slowly.iter().zip(1..) {
                tokio::time::sleep_until(start + n * HEAD / 8).await;
                if write.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
        };
        let mut buffer = [0; 1024];
        let end = async {
            while read.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
            start.elapsed()
        };
        let after = tokio::select! {
            after = end => after,
            () = drip => panic!("all of it was read"),
        };
        assert!(after >= HEAD, "{after:?}");
    }
    proxy.is_idle().await;
}

/// The contract: no limit on how long a body takes.
#[tokio::test]
async fn a_body_may_come_as_slowly_as_it_likes() {
    let node = Node::start().await;
    let proxy = node.proxy_with("server.header_read_timeout = \"100ms\"\nserver.idle_timeout = \"100ms\"");
    let length = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\n\r\n");
    let (mut client, mut upstream, _) = node.exchange(&proxy, length).await;
    let mut frames = Frames::connect(proxy.address).await;
    frames.send(frame(HEADERS, END_HEADERS, 1, request("POST"))).await;
    let mut other = node.accept().await;
    other.head().await;
    for n in 0..5 {
        // Both times pass.
        Raw::connect(proxy.address).await.is_left().await;
        client.write("x").await;
        assert_eq!(upstream.exactly(1).await, b"x");
        frames.send(frame(DATA, u8::from(n == 4), 1, "y")).await;
        assert_eq!(other.chunk().await.as_deref(), Some(&b"y"[..]));
    }
    upstream.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
    assert_eq!(other.chunk().await, None);
    other.write(OK).await;
    assert_eq!(frames.fate(1).await, Fate::Answer(200));
}

#[tokio::test]
async fn a_thousand_idle_connections_starve_nobody() {
    many_descriptors();
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let mut idle = Vec::new();
    for n in 0..1000 {
        let mut client = Raw::connect(proxy.address).await;
        match n % 4 {
            0 => {}
            1 => client.write(&get("/")[..25]).await,
            2 => client.write(&PREFACE[..n % 20]).await,
            _ => client.write([PREFACE, &frame(4, 0, 0, [])].concat()).await,
        }
        idle.push(client);
    }
    let mut working = Raw::connect(proxy.address).await;
    for _ in 0..20 {
        working.write(get("/")).await;
        assert_eq!(working.message().await.text(), "ok");
        assert_eq!(proxy.get(8000, "abc", "/new").await.text(), "ok");
    }
    proxy.metric_becomes("client_proxy_connections", 1001.0).await;
    drop((idle, working));
    proxy.is_idle().await;
}

#[tokio::test]
async fn who_comes_when_all_places_are_taken_waits_and_slow_clients_lose_theirs() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, &format!("{STRICT}\nserver.max_connections = 4")));
    let mut taken = Vec::new();
    for _ in 0..4 {
        let mut client = Raw::connect(proxy.address).await;
        client.write(&get("/")[..9]).await;
        taken.push(client);
    }
    proxy.metric_becomes("client_proxy_connections", 4.0).await;
    let mut next = Raw::connect(proxy.address).await;
    next.write(get("/")).await;
    assert_eq!(Head(next.head().await).status(), 200);
    assert_eq!(sandbox.takes("the next").await, ["GET /"]);
}

#[tokio::test]
async fn heads_that_each_come_in_time_may_come_in_pieces_for_ever() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, STRICT));
    let mut client = Frames::connect(proxy.address).await;
    let start = Instant::now();
    let head = |stream: u32| frame(HEADERS, END_HEADERS | END_STREAM, stream, request("GET"));
    client.send(&head(1)[..20]).await;
    let mut stream = 1;
    while start.elapsed() < 3 * HEAD {
        // What ends one head begins the next.
        let next = head(stream + 2);
        client.send([&head(stream)[20..], &next[..20]].concat()).await;
        assert_eq!(client.fate(stream).await, Fate::Answer(200), "after {:?}", start.elapsed());
        stream += 2;
    }
}
