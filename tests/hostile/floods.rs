//! HTTP/2 clients that cost more than they ask for: their connection ends or waits, and nothing of it stays.

use std::time::Duration;

use tokio::{io::AsyncWriteExt as _, time::timeout};

use crate::{
    frames::{
        CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, Fate, Frames,
        GOAWAY, HEADERS, PING, PROTOCOL_ERROR, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
    },
    sandbox::Sandbox,
    support::{
        Proxy,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        eventually, free_port, metric, nodes_at,
        wire::{HOST, node_mode},
    },
};

fn head(stream: u32, flags: u8, method: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", HOST), (":path", "/")];
    frame(HEADERS, flags, stream, block(fields))
}

/// What the process has in memory, kB.
fn memory(proxy: &Binary) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, CANCEL.to_be_bytes())
}

/// Odd numbers: the streams that a client opens.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 2 * n + 1)
}

#[tokio::test]
async fn who_resets_streams_without_end_is_ended_and_the_process_lives() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let mut client = Frames::connect(proxy.address).await;
    for stream in streams(5000) {
        client.send([head(stream, END_HEADERS | END_STREAM, "GET"), reset(stream)].concat()).await;
    }
    client.end().await;
    proxy.is_idle_upstream_too().await;
    assert_eq!(proxy.get(8000, "abc", "/").await.text(), "ok");
}

#[tokio::test]
async fn a_hundred_and_fifty_cancelled_streams_end_nothing() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let mut client = Frames::connect(proxy.address).await;
    for stream in streams(150) {
        client.send(head(stream, END_HEADERS, "POST")).await;
        client.send(reset(stream)).await;
    }
    client.get(301, HOST, "/after").await;
    assert_eq!(client.fate(301).await, Fate::Answer(200));
    // And all in one piece.
    let mut client = Frames::connect(proxy.address).await;
    let all: Vec<u8> =
        streams(120).flat_map(|stream| [head(stream, END_HEADERS, "POST"), reset(stream)].concat()).collect();
    client.send(all).await;
    client.get(301, HOST, "/after").await;
    assert_eq!(client.fate(301).await, Fate::Answer(200));
}

#[tokio::test]
async fn what_breaks_the_rules_of_the_connection_ends_it() {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let fields = block([(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/")]);
    let interleaved = [frame(HEADERS, 0, 1, &fields), frame(PING, 0, 0, [0; 8])].concat();
    let many: Vec<u8> = (0..3000).flat_map(|_| frame(CONTINUATION, 0, 1, [])).collect();
    let endless: Vec<u8> =
        (0..200).flat_map(|_| frame(CONTINUATION, 0, 1, block([("x-a", "b".repeat(10_000))]))).collect();
    let empty: Vec<u8> = (0..2000).flat_map(|_| frame(DATA, 0, 1, [])).collect();
    let beyond = (0x7fff_ffff_u32).to_be_bytes();
    let upload = head(1, END_HEADERS, "POST");
    for (what, sent, code) in [
        ("a frame inside a header block", interleaved, PROTOCOL_ERROR),
        ("empty CONTINUATION without end", [frame(HEADERS, 0, 1, &fields), many].concat(), ENHANCE_YOUR_CALM),
        ("CONTINUATION without end", [frame(HEADERS, 0, 1, &fields), endless].concat(), ENHANCE_YOUR_CALM),
        ("empty DATA without end", [upload.clone(), empty].concat(), ENHANCE_YOUR_CALM),
        ("CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, &fields), PROTOCOL_ERROR),
        ("HEADERS on the connection", frame(HEADERS, END_HEADERS, 0, &fields), PROTOCOL_ERROR),
        ("HEADERS on an even stream", frame(HEADERS, END_HEADERS, 2, &fields), PROTOCOL_ERROR),
        ("DATA on the connection", frame(DATA, 0, 0, "abc"), PROTOCOL_ERROR),
        ("DATA on a stream that is not open", frame(DATA, 0, 1, "abc"), PROTOCOL_ERROR),
        ("RST_STREAM of one that is not open", reset(1), PROTOCOL_ERROR),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, [0, 0, 0, 2]), PROTOCOL_ERROR),
        ("a window of nothing", frame(WINDOW_UPDATE, 0, 0, [0; 4]), PROTOCOL_ERROR),
        ("a window beyond all", frame(WINDOW_UPDATE, 0, 0, beyond), FLOW_CONTROL_ERROR),
        (
            "a stream's window that is too large",
            frame(SETTINGS, 0, 0, [&[0, 4], &[0xff; 4][..]].concat()),
            PROTOCOL_ERROR,
        ),
        ("frames too small", frame(SETTINGS, 0, 0, [0, 5, 0, 0, 0, 1]), PROTOCOL_ERROR),
        ("SETTINGS of five bytes", frame(SETTINGS, 0, 0, [0; 5]), PROTOCOL_ERROR),
        ("SETTINGS of a stream", frame(SETTINGS, 0, 1, []), PROTOCOL_ERROR),
        ("an acknowledgement with a payload", frame(SETTINGS, 1, 0, [0; 6]), PROTOCOL_ERROR),
        ("PING of seven bytes", frame(PING, 0, 0, [0; 7]), PROTOCOL_ERROR),
        ("padding beyond the frame", [upload.clone(), frame(DATA, 8, 1, [9, 0])].concat(), PROTOCOL_ERROR),
        ("GOAWAY of three bytes", frame(GOAWAY, 0, 0, [0; 3]), PROTOCOL_ERROR),
    ] {
        let mut client = Frames::connect(proxy.address).await;
        client.may_send().await;
        client.send(sent).await;
        let fate = client.fate(1).await;
        assert_eq!(fate, Fate::GoAway(code), "{what}");
        client.end().await;
        proxy.is_idle().await;
    }
}

/// What a client may keep here of uploads that nobody takes: payload and, in tiny frames, what each frame costs. h2
/// ends the connection when the frames would cost half of what the payload may.
#[tokio::test]
async fn tiny_frames_of_held_uploads_are_bounded() {
    let control = ControlPlane::start().await;
    let gate = Gate::closed();
    let asleep = control.sandbox("abc");
    asleep.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let proxy = Binary::start(&control.config(&nodes_at(free_port("127.0.0.1")))).await;
    let before = memory(&proxy);
    let mut client = Frames::connect(proxy.address).await;
    client.may_send().await;
    let tiny: Vec<u8> = (0..1000).flat_map(|_| frame(DATA, 0, 1, "x")).collect();
    client.send(head(1, END_HEADERS, "POST")).await;
    asleep.connects_become(1).await;
    for _ in 0..60 {
        client.send(&tiny).await;
    }
    client.send(frame(PING, 0, 0, [7; 8])).await;
    client.pong().await;
    let kept = memory(&proxy).saturating_sub(before);
    println!("60 000 frames: {kept} kB");
    assert!(kept < 48 << 10, "{kept} kB for 60 kB of payload");
    for _ in 0..60 {
        client.send(&tiny).await;
    }
    assert_eq!(client.end().await, Some(ENHANCE_YOUR_CALM));
}

/// Frames that must be answered, from a client that reads no answers: it is not read from either.
#[tokio::test]
async fn questions_of_a_client_that_does_not_listen_wait_in_its_own_socket() {
    let sandbox = Sandbox::start().await;
    let proxy = Binary::start(&node_mode(sandbox.address, "")).await;
    let before = memory(&proxy);
    let mut clients = Vec::new();
    for question in [frame(PING, 0, 0, [7; 8]), frame(SETTINGS, 0, 0, []), frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])] {
        let mut client = Frames::connect(proxy.address).await;
        let many = question.repeat(10_000);
        // Until nobody takes it any more.
        let flood = async {
            for _ in 0..1000 {
                if client.0.0.write_all(&many).await.is_err() {
                    break;
                }
            }
        };
        let _ = timeout(Duration::from_secs(2), flood).await;
        clients.push(client);
    }
    let grown = memory(&proxy).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} kB");
    drop(clients);
    eventually("nobody connected", async || metric(proxy.health, "client_proxy_connections").await == 0.0).await;
}

#[tokio::test]
async fn more_than_the_window_of_a_held_upload_ends_its_stream() {
    let control = ControlPlane::start().await;
    let asleep = control.sandbox("abc");
    asleep.paused("127.0.0.1").wakes([Step::Truly.after(&Gate::closed())]);
    let proxy = Proxy::start(&control.config(&nodes_at(free_port("127.0.0.1"))));
    let mut client = Frames::connect(proxy.address).await;
    client.may_send().await;
    let window: Vec<u8> = (0..17).flat_map(|_| frame(DATA, 0, 1, [0; 16_384])).collect();
    client.send(head(1, END_HEADERS, "POST")).await;
    asleep.connects_become(1).await;
    client.send(window).await;
    assert_eq!(client.fate(1).await, Fate::Reset(FLOW_CONTROL_ERROR));
    // It serves on.
    client.get(3, "nonsense", "/").await;
    assert_eq!(client.fate(3).await, Fate::Answer(400));
}
