//! What the process runs with, and what it logs for a while: `/config` and `/log` of the admin listener.

use std::net::SocketAddr;

use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::{
    Answer, Raw, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, KEY, Step},
    eventually, get, nodes_at, send,
    wire::node_mode,
};

const SECRET: &str = "a5ecret0";

async fn call(admin: SocketAddr, method: &str, body: impl Into<String>) -> Answer {
    let request = http::Request::builder().method(method).uri("/log").header("host", "x");
    send(admin, request.body(Full::from(body.into())).expect("a request")).await
}

async fn put(proxy: &Binary, body: &Value) -> Value {
    let answer = call(proxy.admin, "PUT", body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn another_filter_holds_for_a_while() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let filter = "warn,client_proxy::app=info,client_proxy::telemetry=info";
    let proxy = Binary::start(&node_mode(upstream.address, &format!("log.filter = \"{filter}\""))).await;
    let configured = json!({ "current": filter, "configured": filter, "until": null });
    let tell = async || get(proxy.admin, "/log").await.json();
    assert_eq!(tell().await, configured);
    // A request that is refused leaves a line of level DEBUG.
    let refused = async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write("GET / HTTP/1.1\r\nHost: nonsense\r\n\r\n").await;
        client.message().await;
        proxy.lines_of("refused").len()
    };
    refused().await;
    let view = put(&proxy, &json!({ "filter": "client_proxy=debug", "for": "1h" })).await;
    assert_eq!((&view["current"], &view["configured"]), (&json!("client_proxy=debug"), &configured["current"]));
    assert!(view["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{view}");
    eventually("details are logged", async || refused().await > 0).await;
    // The second takes its place, and ends by itself.
    put(&proxy, &json!({ "filter": "client_proxy::request=debug,info", "for": "300ms" })).await;
    eventually("it is over", async || tell().await == configured).await;
    eventually("its end is told", async || proxy.line("the configured log filter again").is_some()).await;
    let before = proxy.lines_of("refused").len();
    assert_eq!((refused().await, refused().await), (before, before));
    // Ended by hand; and what SIGHUP says meanwhile holds after it.
    assert!(put(&proxy, &json!({ "filter": "debug" })).await["until"].is_string());
    assert_eq!(call(proxy.admin, "DELETE", "").await.json(), configured);
    put(&proxy, &json!({ "filter": "debug", "for": "24h" })).await;
    proxy.reload(&node_mode(upstream.address, "log.filter = \"info\"")).await;
    assert_eq!((&tell().await["current"], &tell().await["configured"]), (&json!("debug"), &json!("info")));
    assert_eq!(call(proxy.admin, "DELETE", "").await.json()["current"], "info");
}

#[tokio::test]
async fn what_is_no_filter_is_refused_and_says_what_would_be_one() {
    let proxy = Binary::start("server.workers = 1").await;
    let before = get(proxy.admin, "/log").await.json();
    let (parameter, unreadable) = ("invalid_parameter", "invalid_body");
    for (body, status, error, part) in [
        (String::new(), 400, unreadable, "client_proxy=debug"),
        ("[1".into(), 400, unreadable, "client_proxy=debug"),
        ("{\"for\": \"10m\"}".into(), 400, unreadable, "client_proxy=debug"),
        ("{\"filter\": \"a5ecret=b=c\"}".into(), 400, parameter, "info,client_proxy=debug"),
        ("{\"filter\": 1}".into(), 400, unreadable, "client_proxy=debug"),
        ("{\"filter\": \"debug\", \"for\": \"a5ecret\"}".into(), 400, parameter, "1h30m"),
        ("{\"filter\": \"debug\", \"for\": \"25h\"}".into(), 400, parameter, "24h"),
        ("{\"filter\": \"debug\", \"for\": \"0s\"}".into(), 400, parameter, "1ms"),
        ("{\"filter\": \"debug\", \"a5ecret\": \"1h\"}".into(), 400, unreadable, "client_proxy=debug"),
        (format!("{{\"filter\": \"{}\"}}", "a".repeat(5000)), 413, unreadable, "4096"),
    ] {
        let answer = call(proxy.admin, "PUT", body.clone()).await;
        let told = answer.json();
        assert_eq!((answer.status.as_u16(), &told["code"]), (status, &json!(status)), "{body}: {told}");
        assert_eq!((&told["error"], told.as_object().map_or(0, serde_json::Map::len)), (&json!(error), 3), "{told}");
        assert!(told["message"].as_str().is_some_and(|message| message.contains(part)), "{part}: {told}");
        assert!(!told.to_string().contains("a5ecret"), "it repeats the request: {told}");
    }
    assert_eq!(get(proxy.admin, "/log").await.json(), before);
    // The health port is for anybody.
    assert_eq!(get(proxy.health, "/log").await.text(), get(proxy.health, "/").await.text());
    assert_eq!(call(proxy.health, "PUT", "{\"filter\": \"debug\"}").await.status, 405);
    let guarded = Binary::start("server.workers = 1\nadmin.token = \"a5ecret0admin\"").await;
    assert_eq!(call(guarded.admin, "PUT", "{\"filter\": \"debug\"}").await.status, 401);
}

#[tokio::test]
async fn no_filter_brings_a_secret_to_light() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Binary::start(&control.config(&nodes_at(node.address.port()))).await;
    put(
        &proxy,
        &json!({ "filter": "trace,hyper=trace,hyper_util=trace,reqwest=trace,h2=trace,axum=trace,tower=trace" }),
    )
    .await;
    let asleep = control.sandbox("abc");
    asleep.paused("127.0.0.1").set("/envdAccessToken", json!("a5ecret0envd")).wakes([Step::Truly]);
    for target in ["/?q=a5ecret0query", "/%zz?a5ecret0query"] {
        let mut client = Raw::connect(proxy.address).await;
        client
            .write(format!(
                "POST {target} HTTP/1.1\r\nHost: 49983-abc.example.test\r\nX-Access-Token: a5ecret0envd\r\n\
                 E2b-Traffic-Access-Token: a5ecret0traffic\r\nAuthorization: Bearer a5ecret0app\r\n\
                 Cookie: a5ecret0cookie\r\nContent-Length: 12\r\n\r\na5ecret0body"
            ))
            .await;
        assert_eq!(client.message().await.head.status(), 200);
    }
    let mut broken = Raw::connect(proxy.address).await;
    broken.write("GET /?a5ecret0query HTTP/1.1\r\nCookie a5ecret0cookie\r\n\r\n").await;
    broken.is_left().await;
    let told = proxy.last_words().await;
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // It looked closely, and of others not closer than `info`.
    let details = |line: &&Value| line["level"] == "DEBUG" || line["level"] == "TRACE";
    let targets: Vec<_> = lines.iter().filter(details).map(|line| line["target"].as_str().expect("a target")).collect();
    assert!(!targets.is_empty(), "{told}");
    assert!(targets.iter().all(|target| target.starts_with("client_proxy")), "{targets:?}");
    assert!(!told.contains(SECRET) && !told.contains(KEY), "{told}");
}
