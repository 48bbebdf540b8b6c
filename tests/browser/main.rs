//! A real browser as the client: through TLS and HTTP/2, and plainly. Needs the program `chromium`.

#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

mod chromium;
mod devtools;
mod errors;
mod page;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
#[allow(dead_code, unreachable_pub, reason = "as in support")]
mod tls;

use std::{sync::Arc, time::Duration};

use chromium::Browser;
use http::{HeaderMap, Method};
use page::{COOKIE, Happened, Page};
use serde_json::{Value, json};
use support::{
    Proxy,
    control_plane::{ControlPlane, Gate, Step},
    nodes_at,
};
use tls::{Authority, door};
use tokio::{sync::Notify, time::timeout};

/// A browser starts on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A page of the sandbox `abc`, which sleeps; the sandbox `sink` takes its report.
struct Stage {
    page: Page,
    control: ControlPlane,
    proxy: Proxy,
    gate: Gate,
    asked_to_wake: Arc<Notify>,
}

impl Stage {
    async fn new(lines: &str) -> Self {
        let (page, control) = (Page::serve(), ControlPlane::start().await);
        let (gate, asked_to_wake) = (Gate::closed(), Arc::new(Notify::new()));
        let asked = asked_to_wake.clone();
        let wake = Step::Truly.after(&gate).doing(move || asked.notify_one());
        control.sandbox("abc").paused("127.0.0.1").wakes([wake]);
        control.sandbox("sink").running("127.0.0.1");
        let lines = format!("{}cache.ttl = \"50ms\"\n{lines}", nodes_at(page.address.port()));
        let proxy = Proxy::start(&control.config(&lines));
        Self { page, control, proxy, gate, asked_to_wake }
    }

    async fn happens(&mut self) -> Happened {
        timeout(LIMIT, self.page.happened.recv()).await.expect("something in time").expect("a page")
    }

    /// The page waits there, or a report says why not.
    async fn reached(&mut self, place: &str) {
        match self.happens().await {
            Happened::Reached(name) if name == place => {}
            other => panic!("not {place}: {other:?}"),
        }
    }

    async fn handshake(&mut self) -> HeaderMap {
        match self.happens().await {
            Happened::Handshake(method, headers) => {
                assert_eq!(method, Method::GET);
                headers
            }
            other => panic!("no handshake: {other:?}"),
        }
    }

    /// What its navigation is held for.
    async fn wakes(&self) {
        timeout(LIMIT, self.asked_to_wake.notified()).await.expect("a call to wake it, in time");
        self.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        assert_eq!(self.proxy.count("client_proxy_requests_total").await, 0);
        self.gate.open();
    }

    /// From now on nobody may wake it.
    fn falls_asleep(&self) {
        self.control.sandbox("abc").set("/state", json!("paused")).set("/lifecycle", json!({ "autoResume": false }));
    }

    /// Answers of the sandbox with this status.
    async fn answers(&self, status: u16) -> usize {
        let name = format!("client_proxy_requests_total{{origin=\"sandbox\",status=\"{status}\"");
        self.proxy.count(&name).await
    }

    /// All that the page does; its connections have this protocol, its sockets are opened with that status.
    async fn plays(&mut self, origin: &str, protocol: &str, switched: u16) -> Value {
        self.wakes().await;
        self.reached("left").await;
        let seen = self.handshake().await;
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "first.v1, second.v2"),
            ("origin", origin),
            ("cookie", COOKIE),
            ("host", origin.split_once("://").expect("a scheme").1),
            ("x-forwarded-for", "127.0.0.1"),
        ] {
            let value = if name == "connection" { value.to_ascii_lowercase() } else { value.to_owned() };
            let is = seen[name].to_str().expect("ASCII");
            assert_eq!(if name == "connection" { is.to_ascii_lowercase() } else { is.to_owned() }, value, "{name}");
        }
        assert!(!seen.contains_key(":protocol"));
        self.reached("open").await;
        assert_eq!(self.proxy.count("client_proxy_tunnels").await, 1);
        let before = self.answers(switched).await;
        let connections = |protocol| format!("client_proxy_connections{{protocol=\"{protocol}\"}}");
        if protocol == "h2" {
            // A browser whose first attempt to connect takes long makes a second one beside it, and keeps both.
            let all = self.proxy.count(&connections("http2")).await;
            assert!((1..=2).contains(&all), "{all} connections");
            assert_eq!(self.proxy.count(&connections("http1")).await, 0);
        } else {
            assert_eq!(self.proxy.count(&connections("http2")).await, 0);
        }
        self.page.go_on("open");
        self.reached("closed").await;
        self.proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
        // The requests that say where the page is are answered with 204.
        assert_eq!(self.answers(switched).await, before + 1);
        self.page.go_on("closed");
        self.handshake().await;
        self.reached("asleep").await;
        self.falls_asleep();
        self.page.go_on("asleep");
        match self.happens().await {
            Happened::Report(report) => report,
            other => panic!("no report: {other:?}"),
        }
    }
}

fn check(report: &Value, protocol: &str) {
    assert_eq!(report["error"], Value::Null, "{report:#}");
    assert_eq!(report["hello"], json!({ "status": 200, "text": "hello", "own": "1" }));
    let sum = |length: u64| (0..length).map(|at| at * 31 % 251).sum::<u64>();
    assert_eq!(report["upload"], json!({ "bytes": 5_000_000, "sum": sum(5_000_000), "length": true }));
    assert_eq!(report["same"], true);
    let events: Vec<_> = (1..=4).map(|n| json!([n.to_string(), format!("event {n}")])).collect();
    assert_eq!(report["events"], json!(events));
    assert_eq!(
        report["socket"],
        json!({
            "protocol": "second.v2", "text": "Grüße 🌍", "binary": true,
            "closed": [4321, "done", true], "left": [4001, "bye", true],
        })
    );
    let refusal = &report["refusal"];
    assert_eq!((&refusal["status"], &refusal["body"]["code"]), (&json!(502), &json!(502)));
    assert_eq!(refusal["type"], "application/json; charset=utf-8");
    assert_eq!(refusal["body"]["error"], "sandbox_not_found");
    assert_eq!(refusal["body"]["reason"], "auto_resume_off");
    assert!(refusal["told"].as_str().is_some_and(|told| told.starts_with("client-proxy; error=")), "{refusal}");
    let protocols = report["protocols"].as_array().expect("a list");
    for path in ["/", "/hello", "/upload", "/echo", "/events", "/wait/open"] {
        assert!(protocols.iter().any(|one| one[0] == path), "{path}: {protocols:?}");
    }
    for one in protocols {
        assert_eq!(one[1], protocol, "{one}");
    }
}

#[tokio::test]
async fn a_page_over_tls_has_all_that_pages_have_by_http2() {
    let authority = Authority::new();
    authority.issue("wild", &["*.example.test"]);
    let mut stage = Stage::new(&authority.config(&["wild"])).await;
    let origin = format!("https://8000-abc.example.test:{}", door(&stage.proxy).port());
    let browser = Browser::open(&format!("{origin}/"), Some(&authority.key_hash("wild")));
    let report = stage.plays(&origin, "h2", 200).await;
    check(&report, "h2");
    let sum = 5 * (0..100_000_u64).map(|at| at * 31 % 251).sum::<u64>();
    assert_eq!(report["streamed"], json!({ "bytes": 500_000, "sum": sum, "length": false }));
    assert_eq!(stage.answers(101).await, 0);
    drop(browser);
    stage.proxy.is_idle().await;
}

#[tokio::test]
async fn a_page_without_tls_has_them_by_http1() {
    let mut stage = Stage::new("").await;
    let origin = format!("http://8000-abc.example.test:{}", stage.proxy.address.port());
    let browser = Browser::open(&format!("{origin}/"), None);
    let report = stage.plays(&origin, "http/1.1", 101).await;
    check(&report, "http/1.1");
    drop(browser);
    stage.proxy.is_idle().await;
}
