//! SIGHUP to the real program: what is live changes, what is not is named, and nothing breaks.

use http_body_util::Full;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    self, Answer, Raw, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, Gate, Step},
    count, eventually, get, nodes_at, request, send,
    wire::{self, Node, direct_mode, get as head, node_mode},
};

async fn ask(proxy: &Binary, sandbox: &str) -> Answer {
    send(proxy.address, request("GET", 8000, sandbox, "/").body(Full::default()).expect("a request")).await
}

/// The status and code of a request that the proxy answers itself.
async fn refused(proxy: &Binary, sandbox: &str) -> (u16, String) {
    let answer = ask(proxy, sandbox).await;
    (answer.status.as_u16(), answer.error())
}

async fn reloads(proxy: &Binary, toml: &str, changed: &str) {
    let told = proxy.reload(toml).await;
    assert_eq!((&told["message"], &told["changed"]), (&json!("configuration reloaded"), &json!(changed)), "{told}");
}

#[tokio::test]
async fn entries_of_the_static_catalog_come_move_and_go_at_once() {
    let (one, other) =
        (Server::start(async |_| answer(200, "one")).await, Server::on("127.0.0.2:0", async |_| answer(200, "other")));
    // Nothing that is known gets old by itself.
    let config = |entries: &str| format!("{}{}[catalog.static]\n{entries}", support::REMEMBER, support::DIRECT);
    let proxy = Binary::start(&config("stays = \"127.0.0.1\"\nmoves = \"127.0.0.1\"\ngoes = \"127.0.0.1\"")).await;
    let (first, second) = (one.address.port(), other.address.port());
    let at = async |port: u16, sandbox: &str| {
        let request = request("GET", port, sandbox, "/").body(Full::default()).expect("a request");
        let answer = send(proxy.address, request).await;
        if answer.status == 200 { answer.text() } else { answer.error() }
    };
    for sandbox in ["stays", "moves", "goes"] {
        assert_eq!(at(first, sandbox).await, "one");
    }
    assert_eq!(at(first, "comes").await, "sandbox_not_found");
    let lookups = async || count(proxy.health, "client_proxy_lookups_total").await;
    let before = lookups().await;
    reloads(
        &proxy,
        &config("stays = \"127.0.0.1\"\nmoves = \"127.0.0.2\"\ncomes = \"127.0.0.1\""),
        "catalog.static.comes, catalog.static.goes, catalog.static.moves",
    )
    .await;
    assert_eq!(at(first, "stays").await, "one");
    assert_eq!(lookups().await, before, "what did not change is known still");
    assert_eq!(at(second, "moves").await, "other");
    assert_eq!(at(first, "goes").await, "sandbox_not_found");
    assert_eq!(at(first, "comes").await, "one");
}

#[tokio::test]
async fn limits_of_connections_change() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let config = |lines: &str| node_mode(upstream.address, lines);
    let proxy = Binary::start(&config("server.max_connections = 1")).await;
    let mut first = Raw::connect(proxy.address).await;
    first.write(head("/")).await;
    first.message().await;
    // It waits for a place, and then it says nothing.
    let mut second = Raw::connect(proxy.address).await;
    let lines = "server.max_connections = 2\nserver.header_read_timeout = \"1ms\"";
    reloads(&proxy, &config(lines), "server.header_read_timeout, server.max_connections").await;
    assert_eq!(proxy.lines_of("effective limits").len(), 2, "they are told anew");
    second.is_left().await;
    // Fewer: who is there stays, and the next one waits until there is a place.
    let lines = "server.max_connections = 1\nserver.idle_timeout = \"1ms\"";
    let keys = "server.header_read_timeout, server.idle_timeout, server.max_connections";
    reloads(&proxy, &config(lines), keys).await;
    let mut third = Raw::connect(proxy.address).await;
    third.write(head("/")).await;
    for _ in 0..2 {
        first.write(head("/")).await;
        assert_eq!(first.message().await.text(), "hello", "it keeps the times under which it began");
    }
    third.waits(proxy.health).await;
    drop(first);
    assert_eq!(third.message().await.text(), "hello");
    third.is_left().await;
}

#[tokio::test]
async fn limits_of_held_requests_and_calls_change() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config =
        |more: &str| control.config(&format!("{}cache.negative_ttl = \"1ms\"\n{more}", nodes_at(node.address.port())));
    let proxy = Binary::start(&config("")).await;
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let address = proxy.address;
    let held = tokio::spawn(async move {
        send(address, request("GET", 8000, "abc", "/").body(Full::default()).expect("a request")).await
    });
    control.sandbox("abc").connects_become(1).await;
    let too_many = (503, "too_many_held".to_owned());
    for (lines, key, want) in [
        ("resume.max_held = 1", "resume.max_held", too_many.clone()),
        ("resume.max_held_per_sandbox = 1", "resume.max_held, resume.max_held_per_sandbox", too_many),
        (
            "resume.hold_timeout = \"50ms\"",
            "resume.hold_timeout, resume.max_held_per_sandbox",
            (504, "hold_timeout".into()),
        ),
    ] {
        reloads(&proxy, &config(lines), key).await;
        assert_eq!(refused(&proxy, "abc").await, want, "{lines}");
    }
    // Whoever waited before keeps what was promised.
    gate.open();
    assert_eq!(held.await.expect("no panic").status, 200);
    reloads(&proxy, &config("resume.call_timeout = \"50ms\""), "resume.call_timeout, resume.hold_timeout").await;
    control.sandbox("abd").paused("127.0.0.1").always_wakes(Step::Truly.after(&Gate::closed()));
    assert_eq!(refused(&proxy, "abd").await, (503, "control_plane_unavailable".into()));
    reloads(&proxy, &config("catalog.rest.timeout = \"50ms\""), "catalog.rest.timeout, resume.call_timeout").await;
    control.sandbox("abe").always_looks_up(Step::Truly.after(&Gate::closed()));
    assert_eq!(refused(&proxy, "abe").await, (503, "control_plane_unavailable".into()));
}

#[tokio::test]
async fn times_of_the_cache_change() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = |more: &str| control.config(&format!("{}{more}", nodes_at(node.address.port())));
    let long = "cache = { ttl = \"1h\", negative_ttl = \"1h\", stale_if_error = \"1h\" }";
    let short = "cache = { ttl = \"1ms\", negative_ttl = \"1ms\", stale_if_error = \"0s\" }";
    let proxy = Binary::start(&config(long)).await;
    control.sandbox("abc").running("127.0.0.1");
    for sandbox in ["abc", "gone", "abc", "gone"] {
        ask(&proxy, sandbox).await;
    }
    assert_eq!((control.sandbox("abc").lookups(), control.sandbox("gone").lookups()), (1, 1));
    reloads(&proxy, &config(short), "cache.negative_ttl, cache.stale_if_error, cache.ttl").await;
    // For what is known already, too: it would have been good for an hour.
    for sandbox in ["abc", "gone"] {
        let before = control.sandbox(sandbox).lookups();
        eventually("it is asked for again", async || {
            ask(&proxy, sandbox).await;
            control.sandbox(sandbox).lookups() > before
        })
        .await;
    }
    control.stop().await;
    eventually("nothing outlives the outage", async || ask(&proxy, "abc").await.status == 503).await;
}

#[tokio::test]
async fn limits_towards_sandboxes_change() {
    let node = Node::on("127.0.0.1:0").await;
    let proxy = Binary::start(&direct_mode("")).await;
    let ask = || format!("GET / HTTP/1.1\r\nHost: {}-abc.example.test\r\n\r\n", node.address.port());
    let mut patient = Raw::connect(proxy.address).await;
    patient.write(ask()).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    let lines = "upstream.max_connections_per_sandbox = 1\nupstream.response_header_timeout = \"50ms\"";
    let keys = "upstream.max_connections_per_sandbox, upstream.response_header_timeout";
    reloads(&proxy, &direct_mode(lines), keys).await;
    let refusal = async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write(ask()).await;
        client.message().await.refusal()
    };
    // What was under way does not count: it began when there was no bound.
    assert_eq!(refusal().await, (504, "upstream_timeout".into()));
    let mut client = Raw::connect(proxy.address).await;
    reloads(&proxy, &direct_mode("upstream.max_connections_per_sandbox = 1"), "upstream.response_header_timeout").await;
    client.write(ask()).await;
    node.accept().await.is_left().await;
    let mut busy = node.accept().await;
    busy.head().await;
    assert_eq!(refusal().await, (429, "too_many_connections".into()));
    // The mode takes a restart; the bound is one of the mode that runs.
    let other_mode = direct_mode("upstream.max_connections_per_sandbox = 1").replace("\"direct\"", "\"node\"");
    assert!(other_mode.contains("\"node\""));
    reloads(&proxy, &other_mode, "").await;
    assert_eq!(refusal().await, (429, "too_many_connections".into()));
    upstream.write(wire::OK).await;
    assert_eq!(patient.message().await.text(), "ok");
}

#[tokio::test]
async fn the_log_the_token_and_the_drain_change() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let config = |more: &str| node_mode(upstream.address, more);
    let mut proxy = Binary::start(&config("log.access = \"off\"\nshutdown.drain_delay = \"1h\"")).await;
    ask(&proxy, "abc").await;
    let lines = "admin.token = \"a5ecret0two\"\nshutdown = { drain_delay = \"0s\", drain_timeout = \"1m\" }";
    let keys = "admin.token, log.access, log.filter, shutdown.drain_delay, shutdown.drain_timeout";
    reloads(&proxy, &config(&format!("log.filter = \"info,client_proxy=debug\"\n{lines}")), keys).await;
    assert_eq!(proxy.line("a platform must give this grace now").expect("a line")["grace_seconds"], 62);
    let status = async |token: &str| {
        let request =
            http::Request::get("/config").header("host", "x").header("authorization", format!("Bearer {token}"));
        send(proxy.admin, request.body(Full::default()).expect("a request")).await.status.as_u16()
    };
    assert_eq!((get(proxy.admin, "/config").await.status.as_u16(), status("a5ecret0one").await), (401, 401));
    assert_eq!(status("a5ecret0two").await, 200);
    ask(&proxy, "no-such-port").await;
    eventually("details are logged", async || proxy.line("refused").is_some_and(|line| line["level"] == "DEBUG")).await;
    eventually("access lines are written", async || proxy.line("request").is_some()).await;
    assert_eq!(proxy.lines_of("request").len(), 1, "the first request left none");
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_all_its_faults_are_told() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let config = |more: &str| node_mode(upstream.address, more);
    let proxy = Binary::start(&config("admin.token = \"a5ecret0admin\"")).await;
    let bad = "resume.max_held = 0\nlog.access = \"off\"\nlog.filter = \"a=b=c\"\nadmin.token = \"a5ecret space\"\n\
               server.wrokers = 1";
    for text in [&*config(bad), "[server\na5ecret", "\u{0}", "", " # being written\n\n"] {
        let told = proxy.reload(text).await;
        assert_eq!(told["level"], "ERROR", "{told}");
        let message = told["message"].as_str().expect("text");
        assert!(message.starts_with("configuration not reloaded, nothing changed: "), "{message}");
        for part in ["resume.max_held = 0", "log.filter", "admin.token = ***", "did you mean server.workers?"] {
            assert_eq!(message.contains(part), text.contains("wrokers"), "{part} in {message}");
        }
        assert_eq!(ask(&proxy, "abc").await.status, 200);
    }
    assert_eq!(get(proxy.admin, "/config").await.status, 401, "the token is still needed");
    eventually("access lines are still written", async || proxy.lines_of("request").len() == 5).await;
    // A file that is gone is no configuration either.
    reloads(&proxy, &config("admin.token = \"a5ecret0admin\"\nlog.access = \"errors\""), "log.access").await;
}

#[tokio::test]
async fn what_takes_a_restart_is_named_and_shown_until_then() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let config = |more: &str| node_mode(upstream.address, more);
    let proxy = Binary::start(&config("")).await;
    let page = async || {
        let answer = get(proxy.admin, "/config").await;
        assert!(answer.header("content-type").starts_with("text/plain"));
        assert_eq!(answer.status, 200);
        answer.text()
    };
    let first = page().await;
    assert!(
        first.starts_with("# Loaded 20") && first.contains("\n[server]\n") && !first.contains("Waiting"),
        "{first}"
    );
    let lines = "server.domains = [\"example.test\"]\nlog.format = \"text\"\nresume.max_held = 7";
    let told = proxy.reload(&config(lines)).await;
    assert_eq!(told["changed"], "resume.max_held");
    let warned = || -> Vec<Value> {
        let lines = proxy.log().into_iter().filter(|line| line["level"] == "WARN" && !line["key"].is_null());
        lines.map(|line| line["key"].clone()).collect()
    };
    eventually("both are named", async || warned() == ["log.format", "server.domains"]).await;
    let second = page().await;
    assert!(second.contains("# Waiting for a restart: log.format, server.domains\n"), "{second}");
    assert!(second.contains("max_held = 7\n"), "{second}");
    // And again, as long as they wait.
    reloads(&proxy, &config(lines), "").await;
    eventually("both are named again", async || warned().len() == 4).await;
    reloads(&proxy, &config(""), "resume.max_held").await;
    assert!(!page().await.contains("Waiting"));
    assert_eq!(warned().len(), 4);
}

#[tokio::test]
async fn a_storm_of_hangups_and_one_during_the_drain_do_no_harm() {
    let node = Node::start().await;
    let config = |more: &str| node_mode(node.address, &format!("shutdown.drain_delay = \"0s\"\n{more}"));
    let mut proxy = Binary::start(&config("")).await;
    let mut client = Raw::connect(proxy.address).await;
    client.write(head("/")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    for number in 1..=100 {
        proxy.configure(&config(&format!("resume.max_held = {number}")));
        proxy.signal(Signal::HUP);
    }
    eventually("the last one counts", async || get(proxy.admin, "/config").await.text().contains("max_held = 100\n"))
        .await;
    assert!(proxy.lines_of("configuration ").len() <= 100);
    proxy.signal(Signal::TERM);
    eventually("it drains", async || get(proxy.health, "/").await.status == 503).await;
    reloads(&proxy, &config("resume.max_held = 3"), "resume.max_held").await;
    upstream.write(wire::OK).await;
    assert_eq!(client.message().await.text(), "ok");
    assert_eq!(proxy.end().await.code(), Some(0));
}
