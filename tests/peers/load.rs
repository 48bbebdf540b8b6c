//! h2load: 200 connections with 100 streams each over TLS, while others wait for their sandbox.

use crate::{
    counting,
    support::{
        self, REMEMBER,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, eventually, get,
        http2_node::Http2Node,
        nodes_at, request, send,
    },
    tls::{Authority, binary_door},
    tools::{Running, Said},
};

const CLIENTS: usize = 200;
/// Two for each stream.
const REQUESTS: usize = 40_000;
const HELD: usize = 500;

fn h2load(proxy: &Binary, sandbox: &str, clients: usize, streams: usize, requests: usize) -> Running {
    let door = binary_door(proxy);
    let all = [
        format!("--clients={clients}"),
        format!("--requests={requests}"),
        format!("--max-concurrent-streams={streams}"),
        "--threads=1".into(),
        format!("--connect-to={door}"),
        format!("https://8000-{sandbox}.example.test:{}/", door.port()),
    ];
    Running::start("h2load", &all)
}

fn is_content(said: &Said, requests: usize) {
    let counts = format!(
        "{requests} total, {requests} started, {requests} done, {requests} succeeded, 0 failed, 0 errored, 0 timeout"
    );
    assert_eq!(said.lines("requests: "), [counts], "{said:#?}");
    assert_eq!(said.lines("status codes: "), [format!("{requests} 2xx, 0 3xx, 0 4xx, 0 5xx")], "{said:#?}");
    assert_eq!(said.lines("Application protocol: "), ["h2"], "{said:#?}");
}

/// `upstream`: configuration of the last hop; `came`: how many requests the node there has seen.
async fn is_answered(upstream: &str, streams: usize, came: impl Fn() -> usize) {
    let (control, authority, gate) = (ControlPlane::start().await, Authority::new(), Gate::closed());
    control.sandbox("busy").running("127.0.0.1");
    control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    authority.issue("wild", &["*.example.test"]);
    let lines = format!(
        "log.access = \"errors\"\nresume.hold_timeout = \"5m\"\n{REMEMBER}{upstream}{}",
        authority.config(&["wild"])
    );
    let proxy = Binary::start(&control.config(&lines)).await;
    let becomes = async |name: &str, value: usize| {
        eventually(&format!("{name} = {value}"), async || count(proxy.health, name).await == value).await;
    };
    let first = request("GET", 8000, "busy", "/").body("".into()).expect("a request");
    assert_eq!(send(proxy.address, first).await.status, 200);

    let held = h2load(&proxy, "asleep", HELD / 100, 100, HELD);
    becomes("client_proxy_held_requests", HELD).await;
    let said = h2load(&proxy, "busy", CLIENTS, streams, REQUESTS).end().await.well();
    is_content(&said, REQUESTS);
    assert_eq!(came(), REQUESTS + 1);
    assert_eq!(count(proxy.health, "client_proxy_held_requests").await, HELD);
    assert!(!held.written().contains("finished"), "{}", held.written());

    gate.open();
    is_content(&held.end().await.well(), HELD);
    assert_eq!(came(), REQUESTS + HELD + 1);
    assert_eq!(count(proxy.health, "client_proxy_wakes_total").await, 1);
    becomes("client_proxy_connections", 0).await;
    becomes("client_proxy_held_requests", 0).await;
    let metrics = get(proxy.health, "/metrics").await.text();
    let answered: Vec<_> = metrics.lines().filter(|line| line.starts_with("client_proxy_requests_total{")).collect();
    let all = REQUESTS + HELD + 1;
    assert_eq!(
        answered,
        [format!("client_proxy_requests_total{{origin=\"sandbox\",status=\"200\",error=\"\"}} {all}")]
    );
}

/// 20 000 streams at once: towards the node they share connections, as each one of its own would be more than
/// a process may have descriptors on many machines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_is_answered_while_other_streams_are_held_and_these_are_then() {
    let node = Http2Node::start();
    let upstream = format!("upstream.protocol = \"h2c\"\n{}", nodes_at(node.address.port()));
    is_answered(&upstream, 100, || node.requests()).await;
}

/// The same, each request on a connection of its own towards the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_is_answered_by_a_node_that_speaks_http1() {
    support::many_descriptors();
    let node = counting().await;
    is_answered(&nodes_at(node.address.port()), 10, || node.requests()).await;
}
