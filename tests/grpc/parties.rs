//! What one sandbox does to its connections is nothing to the others of its node.

use crate::{
    frames::{DATA, Peer, SETTINGS},
    support::{
        Proxy, Raw,
        wire::{Node, direct_mode},
    },
};

/// Of SETTINGS (RFC 9113 §6.5).
const ACK: u8 = 1;

const H2C: &str = "upstream.protocol = \"h2c\"\n";

async fn posts(proxy: &Proxy, host: &str, length: usize) -> Raw {
    let mut client = Raw::connect(proxy.address).await;
    let head = format!("POST / HTTP/1.1\r\nHost: {host}.example.test\r\nContent-Length: {length}\r\n\r\n");
    client.write([head.as_bytes(), &vec![b'x'; length]].concat()).await;
    client
}

#[tokio::test]
async fn a_sandbox_that_reads_no_upload_blocks_no_other_one_of_its_node_and_not_its_envd() {
    let node = Node::start().await;
    let proxy = node.proxy_with(&format!("{H2C}catalog.static.def = \"{}\"", node.address.ip()));
    // A stream of each that begins before, and one that begins after.
    let mut other = posts(&proxy, "8000-def", 0).await;
    let mut others = Peer::accept(&node).await;
    let before = others.headers().await;
    let _stuck = posts(&proxy, "8000-abc", 200_000).await;
    let mut stuck = Peer::accept(&node).await;
    stuck.headers().await;
    let mut unread = 0;
    while unread < 65535 {
        unread += stuck.next_of(DATA).await.payload.len();
    }
    let mut after = posts(&proxy, "9000-def", 10).await;
    let stream = others.headers().await;
    assert_eq!(others.next_of(DATA).await.payload, b"xxxxxxxxxx");
    others.answer(stream, b"read").await;
    assert_eq!(after.message().await.text(), "read");
    let mut envd = posts(&proxy, "49983-abc", 10).await;
    let mut its = Peer::accept(&node).await;
    let stream = its.headers().await;
    assert_eq!(its.next_of(DATA).await.payload, b"xxxxxxxxxx");
    its.answer(stream, b"read").await;
    assert_eq!(envd.message().await.text(), "read");
    others.answer(before, b"still there").await;
    assert_eq!(other.message().await.text(), "still there");
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn a_node_that_says_nothing_in_http_2_or_leaves_before_cannot_be_reached() {
    let node = Node::start().await;
    let proxy = node.proxy_with(&format!("{H2C}upstream.connect_timeout = \"300ms\""));
    for end in ["mute", "closed", "reset"] {
        let mut client = posts(&proxy, "8000-abc", 4).await;
        let mut peer = Peer::greet(node.accept().await).await;
        match end {
            "mute" => {}
            "closed" => {
                // With bytes unread, that would be a reset.
                peer.next_of(SETTINGS).await;
                peer.socket.half_close().await;
                peer.socket.is_left().await;
            }
            _ => peer.socket.reset(),
        }
        assert_eq!(client.message().await.refusal(), (503, "node_unavailable".into()), "{end}");
        assert!(node.nobody_knocks(), "{end}");
    }
}

#[tokio::test]
async fn an_application_that_refuses_http_2_without_a_word_is_no_machine_that_is_gone() {
    let node = Node::start().await;
    let proxy = Proxy::start(&direct_mode(H2C));
    let mut client = posts(&proxy, &format!("{}-abc", node.address.port()), 4).await;
    drop(Peer::greet(node.accept().await).await);
    assert_eq!(client.message().await.refusal(), (502, "upstream_failed".into()));
}

#[tokio::test]
async fn the_time_for_an_answer_runs_also_while_the_sandbox_has_not_said_how_it_takes_requests() {
    let node = Node::start().await;
    let lines = format!("{H2C}upstream.response_header_timeout = \"300ms\"\nupstream.connect_timeout = \"60s\"");
    for proxy in [node.proxy_with(&lines), Proxy::start(&direct_mode(&lines))] {
        let mut client = posts(&proxy, &format!("{}-abc", node.address.port()), 4).await;
        let _mute = Peer::greet(node.accept().await).await;
        assert_eq!(client.message().await.refusal(), (504, "upstream_timeout".into()));
    }
}

#[tokio::test]
async fn a_sandbox_that_leaves_whenever_it_has_greeted_is_dialled_a_few_times() {
    for end in ["in the same breath", "once it is heard", "closed"] {
        let node = Node::start().await;
        let proxy = node.proxy_with(H2C);
        let mut client = posts(&proxy, "8000-abc", 4).await;
        let mut kept = Vec::new();
        let mut greets = async || loop {
            let mut peer = Peer::greet(node.accept().await).await;
            peer.write(SETTINGS, 0, 0, &[]).await;
            if end == "closed" {
                peer.socket.reset();
                continue;
            }
            // The client's own SETTINGS, and that it has seen the others.
            while end == "once it is heard" && peer.next_of(SETTINGS).await.flags != ACK {}
            peer.go_away(0).await;
            kept.push(peer);
        };
        let message = tokio::select! {
            message = client.message() => message,
            () = greets() => unreachable!("it goes on"),
        };
        let refusal = message.refusal();
        // Where it closed, the request may have been on its way.
        assert!(refusal == (503, "node_unavailable".into()) || (end == "closed" && refusal.0 == 502), "{refusal:?}");
        let dials = proxy.count("client_proxy_upstream_connections_total").await;
        assert!((1..=3).contains(&dials), "{end}: {dials}");
    }
}
