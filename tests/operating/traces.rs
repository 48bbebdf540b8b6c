//! Traces, as a collector gets them.

use http_body_util::Full;
use rustix::process::Signal;
use tokio::time::{Duration, Instant};

use crate::support::{
    Answer, DIRECT, Raw, Server, answer,
    binary::Binary,
    collector::{Collector, Span},
    control_plane::{ControlPlane, Gate, Step},
    count, eventually, free_port, get, nodes_at, own_ip, request, send,
    wire::{Node, node_mode},
};

/// Spans leave at once.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "20");
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// `GET path` with these fields, and this as its request id.
async fn ask(proxy: &Binary, sandbox: &str, id: &str, fields: &[(&str, &str)]) -> Answer {
    let mut request = request("GET", 8000, sandbox, "/a/path?key=a5ecret").header("x-request-id", id);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    send(proxy.address, request.body(Full::default()).expect("a request")).await
}

async fn hello() -> Server {
    Server::start(async |_| answer(200, "hello")).await
}

/// All values of a field of the last request that the node saw.
fn seen(node: &Server, name: &str) -> Vec<String> {
    let heads = node.seen.lock().expect("no panic");
    let values = heads.last().expect("a request").headers.get_all(name);
    values.iter().map(|value| value.to_str().expect("ASCII").to_owned()).collect()
}

fn follows(span: &Span, parent: &Span) {
    assert_eq!((&span.trace, &span.parent), (&parent.trace, &parent.id), "{span:?} under {parent:?}");
    assert!(parent.from <= span.from && span.from <= span.to && span.to <= parent.to, "{span:?} in {parent:?}");
}

#[tokio::test]
async fn a_request_is_told_in_its_caller_s_trace_and_the_sandbox_in_ours() {
    let (collector, node) = (Collector::start().await, hello().await);
    let proxy = Binary::start_in(&collector.config(&node_mode(node.address, "")), &[SOON]).await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let fields = [
        ("traceparent", &*caller),
        ("tracestate", "one=1"),
        ("tracestate", "two=2, three=3"),
        ("user-agent", "tester/1.0"),
        ("authorization", "Bearer a5ecret"),
        ("cookie", "a=a5ecret"),
        ("x-access-token", "a5ecret"),
        ("e2b-traffic-access-token", "a5ecret"),
    ];
    assert_eq!(ask(&proxy, "abc", "r-1", &fields).await.status, 200);
    // A static catalog is asked, too: that is waiting, however short.
    let (server, mut others) = collector.request("r-1", 2).await;
    assert_eq!((&*server.trace, &*server.parent), (TRACE, CALLER));
    assert_eq!((&*server.name, server.kind, server.failed), ("HTTP GET", "Server", false));
    assert_eq!(server.state, "one=1,two=2,three=3");
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("url.path", "/a/path"),
        ("client.address", "127.0.0.1"),
        ("server.address", "8000-abc.example.test"),
        ("user_agent.original", "tester/1.0"),
        ("network.protocol.version", "1.1"),
        ("client_proxy.sandbox.id", "abc"),
        ("client_proxy.sandbox.port", "8000"),
        ("error.type", ""),
        ("client_proxy.ended_by", ""),
    ] {
        assert_eq!(server.get(name), value, "{name}");
    }
    let forward = others.remove("forward").expect("a span").remove(0);
    follows(&forward, &server);
    assert_eq!((forward.kind, forward.failed), ("Client", false));
    let (host, port) = (node.address.ip().to_string(), node.address.port().to_string());
    assert_eq!((forward.get("server.address"), forward.get("server.port")), (&*host, &*port));
    assert_eq!(forward.get("http.response.status_code"), "200");
    assert_eq!(others["hold"][0].get("client_proxy.hold.for"), "lookup");
    follows(&others["hold"][0], &server);

    assert_eq!(seen(&node, "traceparent"), [format!("00-{TRACE}-{}-01", forward.id)]);
    assert_eq!(seen(&node, "tracestate"), ["one=1", "two=2, three=3"]);

    let resource = &server.resource;
    assert_eq!(
        (&*resource["service.name"], &*resource["service.version"]),
        ("client-proxy", env!("CARGO_PKG_VERSION"))
    );
    // Known by now, and nobody's trace: one of its own, and no hold.
    assert_eq!(ask(&proxy, "abc", "r-2", &[]).await.status, 200);
    let (server, others) = collector.request("r-2", 1).await;
    assert_eq!((&*server.parent, server.trace == TRACE), ("", false));
    assert_eq!(seen(&node, "traceparent"), [format!("00-{}-{}-01", server.trace, others["forward"][0].id)]);
    assert!(!format!("{:?}", collector.spans()).contains("a5ecret"));
}

#[tokio::test]
async fn a_held_request_tells_of_its_wait_and_of_the_wake() {
    let (collector, control, node) = (Collector::start().await, ControlPlane::start().await, hello().await);
    let config = collector.config(&control.config(&nodes_at(node.address.port())));
    let proxy = Binary::start_in(&config, &[SOON]).await;
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::conflict(), Step::Truly.after(&gate)]);
    let released = async {
        control.sandbox("abc").connects_become(2).await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(ask(&proxy, "abc", "r-1", &[]), released);
    assert_eq!(answer.status, 200);
    let (server, others) = collector.request("r-1", 4).await;
    let wakes = &others["wake"];
    let outcomes: Vec<_> = wakes.iter().map(|wake| (wake.get("client_proxy.wake.outcome"), wake.failed)).collect();
    assert_eq!(outcomes, [("transitioning", true), ("ok", false)]);
    let (hold, forward) = (&others["hold"][0], &others["forward"][0]);
    assert_eq!(hold.get("client_proxy.hold.for"), "wake");
    for span in wakes.iter().chain([hold, forward]) {
        assert_eq!((&span.trace, &span.parent), (&server.trace, &server.id));
    }
    for wake in wakes {
        assert_eq!((wake.get("client_proxy.sandbox.id"), wake.kind), ("abc", "Client"));
    }
    follows(hold, &server);
    follows(forward, &server);
    assert!(hold.from <= wakes[0].from && wakes[0].to <= wakes[1].from && hold.to <= forward.from, "{others:?}");

    // Nobody is there any more when the wake lands: its span is told all the same, and so is who left.
    let gate = Gate::closed();
    control.sandbox("left").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut client = Raw::connect(proxy.address).await;
    client.write("GET / HTTP/1.1\r\nHost: 8000-left.example.test\r\nX-Request-Id: r-2\r\n\r\n").await;
    control.sandbox("left").connects_become(1).await;
    drop(client);
    let (server, others) = collector.request("r-2", 1).await;
    assert_eq!((server.get("error.type"), server.get("client_proxy.ended_by")), ("client_closed", "client"));
    assert_eq!((server.get("http.response.status_code"), server.failed), ("", false));
    follows(&others["hold"][0], &server);
    gate.open();
    let (_, others) = collector.request("r-2", 2).await;
    assert_eq!(others["wake"][0].get("client_proxy.wake.outcome"), "ok");
}

#[tokio::test]
async fn a_sandbox_that_freezes_under_a_request_and_one_that_breaks_off_are_told() {
    let (collector, control, node) = (Collector::start().await, ControlPlane::start().await, Node::start().await);
    let soon = "cache.ttl = \"100ms\"\n";
    let proxy = Binary::start_in(&collector.config(&control.config(&format!("{DIRECT}{soon}"))), &[SOON]).await;
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1").wakes([Step::Truly]);
    let host = format!("{}-abc.example.test", node.address.port());
    let mut client = Raw::connect(proxy.address).await;
    client.write(format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Request-Id: r-1\r\n\r\n")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    // One exchange, one sending; in the middle of it, a wait for a wake.
    sandbox.paused("127.0.0.1");
    sandbox.connects_become(1).await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
    client.head().await;
    drop(upstream);
    let (server, others) = collector.request("r-1", 4).await;
    assert_eq!((server.get("error.type"), server.get("client_proxy.ended_by")), ("cut_by_sandbox", "sandbox"));
    assert_eq!((server.get("http.response.status_code"), server.failed), ("200", true));
    let holds: Vec<_> = others["hold"].iter().map(|hold| hold.get("client_proxy.hold.for")).collect();
    assert_eq!(holds, ["lookup", "wake"]);
    let (forward, wait) = (&others["forward"][0], &others["hold"][1]);
    follows(forward, &server);
    assert!(forward.from < wait.from && wait.to < forward.to && forward.failed, "{others:?}");
    assert_eq!((&others["wake"][0].parent, others["wake"].len()), (&server.id, 1));
}

#[tokio::test]
async fn failed_requests_say_why() {
    let (collector, control) = (Collector::start().await, ControlPlane::start().await);
    let node = Server::start(async |_| answer(404, "mine")).await;
    let config = collector.config(&control.config(&nodes_at(node.address.port())));
    let proxy = Binary::start_in(&config, &[SOON]).await;
    assert_eq!(ask(&proxy, "nobody", "r-1", &[]).await.status, 502);
    let (server, others) = collector.request("r-1", 1).await;
    assert_eq!((server.get("error.type"), server.failed), ("sandbox_not_found", true));
    assert_eq!((server.get("http.response.status_code"), others.contains_key("forward")), ("502", false));

    let gate = Gate::closed();
    control.sandbox("dead").running("127.0.0.3").looks_up([Step::Truly, Step::Truly.after(&gate)]);
    let looked_up_again = async {
        control.sandbox("dead").lookups_become(2).await;
        eventually("it waits", async || count(proxy.health, "client_proxy_held_requests").await == 1).await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(ask(&proxy, "dead", "r-2", &[]), looked_up_again);
    assert_eq!(answer.status, 503);
    let (server, others) = collector.request("r-2", 3).await;
    assert_eq!((server.get("error.type"), server.failed), ("node_unavailable", true));
    let forward = &others["forward"][0];
    assert_eq!((forward.get("error.type"), forward.get("server.address")), ("refused", "127.0.0.3"));
    assert!(forward.failed && others["hold"].len() == 2, "{others:?}");
    assert!(forward.to <= others["hold"][1].from, "waiting is no part of sending: {others:?}");

    // The sandbox's own answer is the caller's affair: a failure of the sending only.
    control.sandbox("abc").running("127.0.0.1");
    assert_eq!(ask(&proxy, "abc", "r-3", &[]).await.status, 404);
    let (server, others) = collector.request("r-3", 2).await;
    assert_eq!((server.get("error.type"), server.failed, others["forward"][0].failed), ("", false, true));

    let mut client = Raw::connect(proxy.address).await;
    let name = "X".repeat(3000);
    client
        .write(format!("{name} / HTTP/1.1\r\nHost: nonsense\r\nUser-Agent: {name}\r\nX-Request-Id: r-4\r\n\r\n"))
        .await;
    assert_eq!(client.message().await.refusal().0, 400);
    let (server, _) = collector.request("r-4", 0).await;
    assert_eq!((&*server.name, server.get("http.request.method"), server.failed), ("HTTP", "_OTHER", false));
    assert_eq!((server.get("user_agent.original").len(), server.get("error.type")), (1024, "invalid_host"));
}

#[tokio::test]
async fn what_the_caller_does_not_sample_is_not_told() {
    let (collector, node) = (Collector::start().await, hello().await);
    let config = collector.config(&node_mode(node.address, "shutdown.drain_delay = \"0s\"\n"));
    let never = [SOON, ("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    for environment in [&[SOON][..], &never] {
        let mut proxy = Binary::start_in(&config, environment).await;
        let unsampled = format!("00-{TRACE}-{CALLER}-00");
        assert_eq!(ask(&proxy, "abc", "unsampled", &[("traceparent", &unsampled)]).await.status, 200);
        let told = seen(&node, "traceparent").remove(0);
        assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
        assert_eq!(ask(&proxy, "abc", "alone", &[]).await.status, 200);
        let sampled = format!("00-{TRACE}-{CALLER}-01");
        assert_eq!(ask(&proxy, "abc", "sampled", &[("traceparent", &sampled)]).await.status, 200);
        proxy.signal(Signal::TERM);
        assert!(proxy.end().await.success());
    }
    let mut ids: Vec<_> = collector.spans().iter().map(|span| span.get("client_proxy.request.id").to_owned()).collect();
    ids.retain(|id| !id.is_empty());
    assert_eq!(ids, ["alone", "sampled", "sampled"], "all that the end found waiting was told");
}

#[tokio::test]
async fn a_traceparent_that_is_not_valid_begins_a_new_trace() {
    let (collector, node) = (Collector::start().await, hello().await);
    let proxy = Binary::start_in(&collector.config(&node_mode(node.address, "")), &[SOON]).await;
    ask(&proxy, "abc", "first", &[]).await;
    let valid = format!("00-{TRACE}-{CALLER}-01");
    let cases =
        [vec![("traceparent", "00-0-0-00")], vec![("traceparent", &*valid), ("traceparent", &*valid)], Vec::new()];
    for (at, mut fields) in cases.into_iter().enumerate() {
        fields.push(("tracestate", "one=1"));
        let id = format!("r-{at}");
        assert_eq!(ask(&proxy, "abc", &id, &fields).await.status, 200);
        let (server, others) = collector.request(&id, 1).await;
        assert!(server.parent.is_empty() && server.trace != TRACE && server.state.is_empty(), "{server:?}");
        assert_eq!(seen(&node, "traceparent"), [format!("00-{}-{}-01", server.trace, others["forward"][0].id)]);
        assert_eq!(seen(&node, "tracestate"), [""; 0], "it belonged to another trace");
    }
}

#[tokio::test]
async fn a_collector_that_says_nothing_delays_neither_traffic_nor_the_end() {
    let (collector, node) = (Collector::mute().await, hello().await);
    let config = collector.config(&node_mode(node.address, "shutdown.drain_delay = \"0s\"\n"));
    // A batch is one span, so that the next ones wait for it: beyond the room they are dropped, and counted.
    let mut proxy = Binary::start_in(&config, &[SOON, ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")]).await;
    ask(&proxy, "abc", "first", &[]).await;
    eventually("the collector listens", async || collector.calls() > 0).await;
    let mut client = Raw::connect(proxy.address).await;
    for _ in 0..2200 {
        client.write("GET / HTTP/1.1\r\nHost: 8000-abc.example.test\r\n\r\n").await;
        assert_eq!(client.message().await.head.status(), 200);
    }
    let dropped = count(proxy.health, "client_proxy_spans_total{outcome=\"dropped\"}").await;
    assert!((1..=400).contains(&dropped), "2 spans a request, 4096 wait: {dropped}");
    drop(client);
    let start = Instant::now();
    proxy.signal(Signal::TERM);
    assert!(proxy.end().await.success());
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    eventually("it says so", async || proxy.line("the last spans").is_some()).await;
}

#[tokio::test]
async fn a_second_signal_waits_for_no_span() {
    let (collector, node) = (Collector::mute().await, hello().await);
    let config = collector.config(&node_mode(node.address, "shutdown.drain_delay = \"0s\"\n"));
    let mut proxy = Binary::start_in(&config, &[SOON]).await;
    ask(&proxy, "abc", "first", &[]).await;
    eventually("the collector listens", async || collector.calls() > 0).await;
    proxy.signal(Signal::TERM);
    eventually("only spans are left", async || proxy.line("stopped").is_some()).await;
    proxy.signal(Signal::TERM);
    assert!(proxy.end().await.success());
    assert!(proxy.line("the last spans").is_none());
}

#[tokio::test]
async fn a_collector_that_is_gone_is_a_line_and_not_one_a_span() {
    let node = hello().await;
    let nowhere = own_ip();
    let nobody = format!("otlp.endpoint = \"http://{nowhere}:{}\"\n", free_port(&nowhere));
    let config = format!("{nobody}{}", node_mode(node.address, ""));
    let proxy = Binary::start_in(&config, &[SOON, ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")]).await;
    for _ in 0..3 {
        assert_eq!(ask(&proxy, "abc", "r", &[]).await.status, 200);
    }
    let failed = "client_proxy_spans_total{outcome=\"failed\"}";
    eventually("several batches are lost", async || count(proxy.health, failed).await >= 3).await;
    let lines = proxy.log();
    let told: Vec<_> = lines.iter().filter(|line| line["level"] == "WARN" && line["lost"].is_u64()).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    assert!(told[0]["error"].as_str().is_some_and(|error| error.contains("refused")), "{told:?}");
    assert_eq!(count(proxy.health, "client_proxy_spans_total{outcome=\"exported\"}").await, 0);
}

/// Whether there is the thread that makes batches of spans.
fn has_batches(proxy: &Binary) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", proxy.pid())).expect("its threads");
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    threads.map(|thread| name(thread.expect("a thread"))).any(|name| name.starts_with("OpenTelemetry"))
}

#[tokio::test]
async fn without_a_collector_nothing_of_this_is_there() {
    let (stranger, node) = (Collector::start().await, hello().await);
    let address = format!("http://{}", stranger.address);
    // For other programs' other signals.
    let others =
        [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &*address), ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", &*address), SOON];
    let proxy = Binary::start_in(&node_mode(node.address, ""), &others).await;
    let fields = [("traceparent", "00-0-0-00"), ("traceparent", "2"), ("tracestate", "a, =b")];
    assert_eq!(ask(&proxy, "abc", "r", &fields).await.status, 200);
    assert_eq!(
        (seen(&node, "traceparent"), seen(&node, "tracestate")),
        (vec!["00-0-0-00".into(), "2".into()], vec!["a, =b".into()])
    );
    assert!(!get(proxy.health, "/metrics").await.text().contains("client_proxy_spans"));
    assert!(!has_batches(&proxy));
    proxy.last_words().await;
    assert_eq!(stranger.connections(), 0);
}

#[tokio::test]
async fn the_environment_may_name_the_collector_and_no_secret_of_it_shows() {
    let (collector, node) = (Collector::start().await, hello().await);
    let endpoint = format!("http://us%20er:a5ecret-1@{}/", collector.address);
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a5ecret-2"),
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        SOON,
    ];
    let proxy = Binary::start_in(&node_mode(node.address, "log.filter = \"trace\"\n"), &environment).await;
    assert_eq!(ask(&proxy, "abc", "r-1", &[]).await.status, 200);
    let (server, _) = collector.request("r-1", 2).await;
    assert_eq!((&*server.resource["service.name"], &*server.resource["deployment.environment"]), ("edge", "test"));
    assert!(has_batches(&proxy));
    let headers = &collector.headers()[0];
    // "us er:a5ecret-1"
    assert_eq!(headers["authorization"], "Basic dXMgZXI6YTVlY3JldC0x");
    assert_eq!(headers["x-key"], "a5ecret-2");
    let mut said = get(proxy.admin, "/metrics").await.text();
    said += &proxy.last_words().await;
    for secret in ["a5ecret", "dXMgZXI6"] {
        let at = said.find(secret);
        assert!(at.is_none(), "{:?}", at.map(|at| &said[at.saturating_sub(300)..said.len().min(at + 40)]));
    }
}
