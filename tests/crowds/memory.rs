//! What one held request costs.

use crate::{
    ALONE, Crowd, LONG, PATIENCE, STREAMS, all_well, holds, join,
    support::{
        REMEMBER, Raw,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, eventually,
        http2_node::Http2Node,
        many_descriptors, nodes_at, request, send,
    },
};
use http_body_util::Full;
use tokio::time::timeout;

const SANDBOXES: usize = 20;

fn name(sandbox: usize) -> String {
    format!("s{}", sandbox % SANDBOXES)
}

/// `join` adds so many to the crowd as the step says, the n-th time that it is asked to.
async fn is_held_in(
    kind: &str,
    all: usize,
    step: usize,
    bytes_each: u64,
    join: impl AsyncFn(&mut Crowd, &Binary, usize),
) {
    let _alone = ALONE.lock().await;
    many_descriptors();
    let (control, node, gate) = (ControlPlane::start().await, Http2Node::start(), Gate::closed());
    for sandbox in 0..SANDBOXES {
        control.sandbox(&name(sandbox)).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    }
    control.sandbox("running").running("127.0.0.1");
    let bounds = format!("resume.max_held = {all}\nresume.max_held_per_sandbox = {all}\nupstream.protocol = \"h2c\"\n");
    let lines = format!("{LONG}{REMEMBER}{bounds}{}", nodes_at(node.address.port()));
    let proxy = Binary::start(&control.config(&lines)).await;
    let ask = async |sandbox: &str| {
        send(proxy.address, request("GET", 8000, sandbox, "/").body(Full::default()).expect("a request")).await
    };
    assert_eq!(ask("running").await.status, 200);
    holds(&proxy, 0).await;
    let before = proxy.memory();
    let mut crowd = Crowd::new();
    for number in 0..all / step {
        join(&mut crowd, &proxy, number).await;
        // In steps, so that what is measured is not how far the proxy is behind.
        holds(&proxy, (number + 1) * step).await;
    }
    let grown = proxy.memory().saturating_sub(before);
    let each = (grown << 10) / all as u64;
    println!("{kind}: {all} are held in {grown} KiB, {each} bytes each");
    for sandbox in [name(0), "nobody".into()] {
        assert_eq!(ask(&sandbox).await.error(), "too_many_held");
    }
    assert_eq!(ask("running").await.status, 200);
    assert!(crowd.try_join_next().is_none(), "none of them was answered before");
    holds(&proxy, all).await;
    gate.open();
    all_well(&crowd.join_all().await);
    holds(&proxy, 0).await;
    assert_eq!(node.requests(), all + 2);
    assert_eq!(count(proxy.health, "client_proxy_wakes_total").await, SANDBOXES);
    eventually("all connections are closed", async || count(proxy.health, "client_proxy_connections").await == 0).await;
    assert!(each <= bytes_each, "{kind}: {all} are held in {grown} KiB, {each} bytes each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_held_over_http2_take_little_memory_and_all_are_answered() {
    is_held_in("HTTP/2", 20_000, STREAMS, 4 << 10, async |crowd, proxy, number| {
        join(crowd, proxy, 8000, &name(number)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_held_over_http1_take_little_memory_and_all_are_answered() {
    is_held_in("HTTP/1.1", 5000, 100, 16 << 10, async |crowd, proxy, number| {
        for _ in 0..100 {
            let mut client = Raw::connect(proxy.address).await;
            client.write(format!("GET / HTTP/1.1\r\nHost: 8000-{}.example.test\r\n\r\n", name(number))).await;
            crowd.spawn(async move {
                timeout(PATIENCE, client.0.readable()).await.expect("an answer in time").expect("a connection");
                let answer = client.message().await;
                assert_eq!(answer.text(), "hello");
                answer.head.status()
            });
        }
    })
    .await;
}
