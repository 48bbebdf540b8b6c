//! Bodies of requests that are held: they wait at the client, and go upstream once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::support::{
    Proxy, REMEMBER, Raw, Server, answer,
    control_plane::{ControlPlane, Gate, Step},
    nodes_at, stands_still,
};

struct World {
    control: ControlPlane,
    node: Server,
    gate: Gate,
    proxy: Proxy,
}

/// A sandbox that sleeps until the gate opens, and counts the bytes that it is sent.
async fn world() -> World {
    let control = ControlPlane::start().await;
    let node = Server::start(async |request| {
        let (mut body, mut length) = (request.into_body(), 0);
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => length += data.len(),
                Ok(Err(_)) => {}
                Err(_) => return answer(500, "half a body"),
            }
        }
        answer(200, format!("{length} bytes"))
    })
    .await;
    let proxy = Proxy::start(&control.config(&format!("{REMEMBER}{}", nodes_at(node.address.port()))));
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    World { control, node, gate, proxy }
}

#[tokio::test]
async fn a_long_body_waits_at_the_client_and_goes_upstream_once() {
    const LENGTH: u64 = 64 << 20;
    const PIECE: u64 = 1 << 16;
    for head in [format!("content-length: {LENGTH}"), "transfer-encoding: chunked".to_owned()] {
        let world = world().await;
        let client = Raw::connect(world.proxy.address).await;
        let (read, mut write) = client.0.into_split();
        let written = Arc::new(AtomicU64::new(0));
        let progress = written.clone();
        let chunked = head.starts_with("transfer");
        let upload = tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: 8000-abc.example.test\r\n{head}\r\n\r\n");
            write.write_all(head.as_bytes()).await.expect("a peer that reads");
            let piece = vec![b'x'; usize::try_from(PIECE).expect("small")];
            for _ in 0..LENGTH / PIECE {
                if chunked {
                    write.write_all(b"10000\r\n").await.expect("a peer that reads");
                }
                write.write_all(&piece).await.expect("a peer that reads");
                if chunked {
                    write.write_all(b"\r\n").await.expect("a peer that reads");
                }
                progress.fetch_add(PIECE, SeqCst);
            }
            if chunked {
                write.write_all(b"0\r\n\r\n").await.expect("a peer that reads");
            }
            write
        });
        world.control.sandbox("abc").connects_become(1).await;
        stands_still(|| written.load(SeqCst)).await;
        let taken = written.load(SeqCst);
        assert!(taken < LENGTH / 2, "{taken} bytes were taken from a request that is held");
        assert_eq!(world.node.requests(), 0);
        world.gate.open();
        let write = upload.await.expect("no panic");
        let mut client = Raw(read.reunite(write).expect("its other half"));
        let answer = client.read_until("bytes").await;
        assert!(answer.ends_with(&format!("\r\n\r\n{LENGTH} bytes")), "{answer}");
        assert_eq!((world.node.requests(), world.node.connections()), (1, 1));
        drop(client);
        world.proxy.is_idle().await;
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_told_after_the_wake() {
    let world = world().await;
    let mut client = Raw::connect(world.proxy.address).await;
    client
        .write("POST / HTTP/1.1\r\nhost: 8000-abc.example.test\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        .await;
    world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
    world.control.sandbox("abc").connects_become(1).await;
    let mut byte = [0];
    assert!(client.0.try_read(&mut byte).is_err(), "told before the sandbox is there");
    world.gate.open();
    assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write("hello").await;
    let answer = client.read_until("bytes").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("5 bytes"), "{answer}");
    drop(client);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_refused_without_its_body() {
    let world = world().await;
    world.gate.open();
    world.proxy.get(8000, "abc", "/").await;
    let mut client = Raw::connect(world.proxy.address).await;
    client
        .write("POST / HTTP/1.1\r\nhost: 8000-nobody.example.test\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        .await;
    let answer = client.head().await;
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    drop(client);
    world.proxy.is_idle().await;
}
