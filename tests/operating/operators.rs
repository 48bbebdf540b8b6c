//! What probes, scrapers and operators see, and what nobody may.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use crate::support::{
    Proxy, Raw, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, KEY, Step},
    eventually, get, nodes_at, request, send,
    wire::{HOST, Node, OK, node_mode},
};

async fn status(address: std::net::SocketAddr, path: &str) -> u16 {
    get(address, path).await.status.as_u16()
}

#[tokio::test]
async fn any_path_of_the_health_port_is_a_health_check() {
    let proxy = Proxy::start("server.workers = 1");
    eventually("ready", async || status(proxy.health, "/healthz/ready").await == 200).await;
    for address in [proxy.health, proxy.admin] {
        for path in ["/", "/health", "/healthz", "/some/other?x=y", "/%ff", "//"] {
            let answer = get(address, path).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "healthy".into()), "{path}");
        }
        assert_eq!(status(address, "/healthz/live").await, 200);
    }
}

#[tokio::test]
async fn it_is_ready_when_the_catalog_has_answered_once_and_stays_so() {
    const PROBED: &str = "i00000000000000000000";
    let control = ControlPlane::start().await;
    control.stop().await;
    let proxy = Proxy::start(&control.config(""));
    let is_unready = async || {
        for (path, code) in
            [("/healthz/ready", 503), ("/healthz/live", 200), ("/", 503), ("/health", 503), ("/metrics", 200)]
        {
            assert_eq!(status(proxy.health, path).await, code, "{path}");
            assert_eq!(status(proxy.admin, path).await, code, "{path}");
        }
    };
    is_unready().await;
    // A failure is no answer.
    let probed = control.sandbox(PROBED);
    probed.always_looks_up(Step::error(500, "oops"));
    control.restart().await;
    eventually("it asks and asks again", async || probed.lookups() >= 2).await;
    is_unready().await;
    probed.always_looks_up(Step::Truly);
    for path in ["/healthz/ready", "/", "/health"] {
        eventually("ready", async || status(proxy.health, path).await == 200).await;
    }
    assert_eq!(get(proxy.health, "/").await.text(), "healthy");
    // Known routes go on.
    control.stop().await;
    assert_eq!(status(proxy.health, "/healthz/ready").await, 200);
}

#[tokio::test]
async fn metrics_tell_what_was_served() {
    let upstream = Server::start(async |_| answer(418, "hello")).await;
    let proxy = Proxy::start(&node_mode(upstream.address, ""));
    proxy.get(8000, "abc", "/").await;
    proxy.get(8000, "abc", "/").await;
    proxy.get(8000, "nobody", "/").await;
    proxy.is_idle().await;
    let answer = get(proxy.health, "/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        "client_proxy_requests_total{origin=\"sandbox\",status=\"418\",error=\"\"} 2",
        "client_proxy_requests_total{origin=\"proxy\",status=\"502\",error=\"sandbox_not_found\"} 1",
        "client_proxy_cache_hits_total 1",
        "client_proxy_held_requests 0",
        "client_proxy_connections{protocol=\"http1\"} 0",
        "client_proxy_upstream_connections 1",
        "client_proxy_upstream_connections_total{result=\"ok\"} 1",
        "client_proxy_request_duration_seconds_count 3",
        "client_proxy_time_to_first_byte_seconds_count 3",
        "# TYPE client_proxy_request_duration_seconds histogram",
    ] {
        assert!(answer.text().lines().any(|is| is == line), "{line}: {}", answer.text());
    }
    assert!(answer.text().contains("client_proxy_build_info{version="));
    for name in ["abc", "nobody", "=\"8000\""] {
        assert!(!answer.text().contains(name), "no labels per sandbox: {name}");
    }
}

#[tokio::test]
async fn a_sandbox_can_be_looked_at_and_forgotten() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Proxy::start(&node_mode(upstream.address, "cache.ttl = \"60s\""));
    assert_eq!(status(proxy.admin, "/sandboxes/abc").await, 404);
    proxy.get(8000, "abc", "/").await;
    let view = get(proxy.admin, "/sandboxes/abc").await.json();
    assert_eq!((&view["sandboxId"], &view["state"], &view["held"]), (&"abc".into(), &"running".into(), &0.into()));
    assert_eq!(view["route"]["node"], "127.0.0.1");
    assert!(view["route"]["generation"].is_u64() && view["route"]["confirmedMsAgo"].is_u64());
    let delete = || {
        let host = proxy.admin.to_string();
        let request = http::Request::delete("/sandboxes/abc").header("host", host);
        request.body(http_body_util::Full::default()).expect("a request")
    };
    assert_eq!(send(proxy.admin, delete()).await.status, 204);
    assert_ne!(get(proxy.admin, "/sandboxes/abc").await.json()["state"], "running");
    let before = proxy.metric("client_proxy_lookups_total").await;
    assert_eq!(proxy.get(8000, "abc", "/").await.status, 200);
    assert_eq!(proxy.metric("client_proxy_lookups_total").await, before + 1.0, "it was looked for again");
    // The health port is for anybody who can reach it: it shows and forgets nothing.
    assert_eq!(get(proxy.health, "/sandboxes/abc").await.text(), "healthy");
    assert_eq!(send(proxy.health, delete()).await.status, 405);
    assert_eq!(get(proxy.admin, "/sandboxes/abc").await.json()["state"], "running");
}

#[tokio::test]
async fn with_a_token_the_admin_port_answers_nobody_else() {
    let proxy = Proxy::start("server.workers = 1\nadmin.token = \"a5ecret0token\"");
    let ask = async |path: &str, authorization: Option<&str>| {
        let mut request = http::Request::get(path).header("host", proxy.admin.to_string());
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        send(proxy.admin, request.body(http_body_util::Full::default()).expect("a request")).await
    };
    eventually("ready", async || status(proxy.health, "/healthz/ready").await == 200).await;
    for path in ["/", "/health", "/healthz/live", "/metrics", "/sandboxes/abc", "/no/such"] {
        for wrong in [
            None,
            Some("Bearer"),
            Some("Bearer "),
            Some("Bearer a5ecret0toke"),
            Some("Bearer a5ecret0tokenx"),
            Some("Bearer A5ECRET0TOKEN"),
            Some("Basic a5ecret0token"),
            Some("a5ecret0token"),
        ] {
            let answer = ask(path, wrong).await;
            assert_eq!(answer.status, 401, "{path} {wrong:?}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            assert!(!answer.text().contains("a5ecret"));
        }
        for scheme in ["Bearer", "bearer", "BEARER "] {
            let status = ask(path, Some(&format!("{scheme} a5ecret0token"))).await.status;
            assert_ne!(status, 401, "{scheme}");
        }
        let right = ask(path, Some("Bearer a5ecret0token")).await.status.as_u16();
        assert_eq!(right, if path.starts_with("/sandboxes") { 404 } else { 200 }, "{path}");
    }
    assert_eq!(status(proxy.health, "/").await, 200, "probes need none");
}

#[tokio::test]
async fn the_access_line_tells_the_facts_of_one_request() {
    let node = Node::start().await;
    let mut proxy = Binary::start(&node_mode(node.address, "")).await;
    let mut client = Raw::connect(proxy.address).await;
    client.write(format!("PUT /a/b%20c?token=a5ecret HTTP/1.1\r\nHost: {HOST}\r\nX-Request-Id: rid-7\r\n\r\n")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    upstream.write(OK).await;
    client.message().await;
    let line = proxy.access_line().await;
    for (field, value) in [
        ("request_id", "rid-7"),
        ("client", "127.0.0.1"),
        ("sandbox", "abc"),
        ("method", "PUT"),
        ("path", "/a/b%20c"),
        ("origin", "sandbox"),
        ("error", ""),
        ("ended_by", ""),
        ("level", "INFO"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!((&line["port"], &line["status"], &line["bytes"]), (&8000.into(), &200.into(), &2.into()));
    for duration in ["held_ms", "head_ms", "total_ms"] {
        assert!(line[duration].is_u64(), "{duration}: {line}");
    }
    client.write("GET http://1-nobody.example.test/x?y HTTP/1.1\r\nHost: 1-nobody.example.test\r\n\r\n").await;
    let bytes = client.message().await.body.len();
    let line = proxy.access_line().await;
    assert_eq!((&line["origin"], &line["error"]), (&"proxy".into(), &"sandbox_not_found".into()));
    assert_eq!((&line["path"], &line["status"], &line["bytes"]), (&"/x".into(), &502.into(), &bytes.into()));
    client.write("GET /z HTTP/1.1\r\nHost: nonsense\r\n\r\n").await;
    client.message().await;
    let line = proxy.access_line().await;
    assert_eq!((&line["sandbox"], &line["port"], &line["error"]), (&"".into(), &0.into(), &"invalid_host".into()));
    assert!(!proxy.last_words().await.contains("a5ecret"));
}

#[tokio::test]
async fn access_lines_can_be_limited_to_errors_or_switched_off() {
    for (access, paths) in [("errors", &["/own"][..]), ("off", &[])] {
        let upstream = Server::start(async |_| answer(500, "oh")).await;
        let proxy = Binary::start(&node_mode(upstream.address, &format!("log.access = \"{access}\""))).await;
        for (sandbox, path) in [("abc", "/sandbox"), ("nobody", "/own"), ("abc", "/sandbox")] {
            let request = request("GET", 8000, sandbox, path).body(http_body_util::Full::default());
            send(proxy.address, request.expect("a request")).await;
        }
        let lines = proxy.last_words().await;
        let access: Vec<serde_json::Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let access = access.iter().filter(|line| line["target"] == "access").map(|line| &line["path"]);
        assert_eq!(access.collect::<Vec<_>>(), paths);
    }
}

#[tokio::test]
async fn secrets_are_in_no_output() {
    let (control, node) = (ControlPlane::start().await, Node::start().await);
    let lines = "admin.token = \"a5ecret0admin\"\nlog.filter = \"trace\"\n";
    let proxy = Binary::start(&control.config(&format!("{lines}{}", nodes_at(node.address.port())))).await;
    let running = control.sandbox("abc");
    running.running("127.0.0.1").set("/envdAccessToken", "a5ecret0envd".into());
    running.set("/trafficAccessToken", "a5ecret0traffic".into());
    control.sandbox("abd").looks_up([Step::Says("{\"a5ecret0\":")]);
    let mut said = String::new();
    for sandbox in ["abc", "abd"] {
        let mut client = Raw::connect(proxy.address).await;
        client
            .write(format!(
                "GET /?a5ecret0query HTTP/1.1\r\nHost: 8000-{sandbox}.example.test\r\ne2b-traffic-access-token: a5ecret0traffic\r\n\
                 X-Access-Token: a5ecret0envd\r\nAuthorization: Bearer a5ecret0app\r\nCookie: a=a5ecret0cookie\r\n\r\n"
            ))
            .await;
        if sandbox == "abc" {
            let mut upstream = node.accept().await;
            upstream.head().await;
            // It breaks, so that there is something to be told.
            drop(upstream);
        }
        let answer = client.message().await;
        let code = if sandbox == "abc" { (502, "upstream_failed") } else { (503, "control_plane_unavailable") };
        assert_eq!(answer.refusal(), (code.0, code.1.into()));
        said += &answer.head.0;
        said += &answer.text();
    }
    for path in ["/metrics", "/sandboxes/abc", "/sandboxes/abd", "/"] {
        let request = http::Request::get(path).header("host", "x").header("authorization", "Bearer a5ecret0admin");
        said += &send(proxy.admin, request.body(http_body_util::Full::default()).expect("a request")).await.text();
    }
    said += &get(proxy.health, "/metrics").await.text();
    said += &proxy.last_words().await;
    for secret in ["a5ecret", KEY] {
        let at = said.find(secret);
        assert!(at.is_none(), "{:?}", at.map(|at| &said[at.saturating_sub(200)..said.len().min(at + 40)]));
    }
}
