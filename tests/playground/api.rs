//! The playground's control API: E2B's rules, row by row, and who may call it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::playground_support::{self, Ground, until};

#[tokio::test(flavor = "multi_thread")]
async fn answers_carry_all_that_sdks_need() {
    let ground = Ground::start(&[]).await;
    ground.playground.set_proxy_addr(([127, 0, 0, 1], 3002).into(), None);
    let api = &ground.api;
    for (path, seconds) in [("/sandboxes", 15), ("/v2/sandboxes", 300)] {
        let made = api.call("POST", path, json!({ "templateID": "base", "metadata": { "a": "b" } })).await;
        assert_eq!(made.status, 201);
        for name in ["templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken", "domain"] {
            assert!(made.body[name].is_string(), "{name}");
        }
        assert_eq!(made.body["domain"], "localhost:3002");
        let id = made.body["sandboxID"].as_str().expect("an id");
        let detail = api.get(&format!("/sandboxes/{id}")).await.body;
        for name in [
            "templateID",
            "sandboxID",
            "clientID",
            "startedAt",
            "endAt",
            "cpuCount",
            "memoryMB",
            "diskSizeMB",
            "state",
            "envdVersion",
            "nodeIP",
        ] {
            assert!(!detail[name].is_null(), "{name}");
        }
        assert_eq!(detail["envdAccessToken"], made.body["envdAccessToken"]);
        assert_eq!(detail["state"], "running");
        assert_eq!(detail["lifecycle"], json!({ "autoResume": false, "onTimeout": "kill" }));
        assert_eq!(detail["network"]["allowPublicTraffic"], true);
        let time = |name: &str| humantime::parse_rfc3339(detail[name].as_str().expect("a time")).expect("RFC 3339");
        let left = time("endAt").duration_since(time("startedAt")).expect("in order");
        assert!(left.abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(1));
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_sandboxes_have_a_traffic_token() {
    let ground = Ground::start(&[]).await;
    let body = json!({ "templateID": "base", "network": { "allowPublicTraffic": false } });
    let made = ground.api.call("POST", "/v2/sandboxes", body).await.body;
    let id = made["sandboxID"].as_str().expect("an id");
    let detail = ground.api.get(&format!("/sandboxes/{id}")).await.body;
    assert_eq!(detail["network"]["allowPublicTraffic"], false);
    assert!(made["trafficAccessToken"].is_string());
    assert_eq!(detail["trafficAccessToken"], made["trafficAccessToken"]);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_as_the_state_of_the_sandbox_demands() {
    let ground = Ground::start(&[]).await;
    let api = &ground.api;
    let sandbox = api
        .create(json!({ "templateID": "base", "timeout": 60, "autoPause": true, "autoResume": { "enabled": true } }))
        .await;
    assert_eq!(sandbox.post("connect").await.status, 200);
    assert_eq!(sandbox.lifetime().await, 300, "connect extends");
    assert_eq!(sandbox.post_with("connect", json!({ "timeout": 10 })).await.status, 200);
    assert_eq!(sandbox.lifetime().await, 300, "and never shortens");
    assert_eq!(sandbox.post_with("connect", json!({ "timeout": 0 })).await.status, 200);
    assert_eq!(sandbox.lifetime().await, 300, "nothing more");
    assert_eq!(sandbox.post_with("connect", json!({ "timeout": -1 })).await.status, 400);
    assert_eq!(sandbox.post("resume").await.told(), (409, "already_running"));
    let token = sandbox.token.clone();
    for wake in 1..=2 {
        let pauses = tokio::join!(sandbox.post("pause"), sandbox.post("pause"));
        assert_eq!((pauses.0.status.as_u16(), pauses.1.status.as_u16()), (204, 204), "joined");
        assert_eq!(sandbox.post("pause").await.told(), (409, "already_paused"));
        assert_eq!(sandbox.post_with("timeout", json!({ "timeout": 9 })).await.told(), (404, "not_running"));
        let detail = sandbox.detail().await.body;
        assert_eq!(
            (&detail["state"], &detail["nodeIP"], &detail["domain"]),
            (&json!("paused"), &Value::Null, &Value::Null)
        );
        assert_eq!(detail["envdAccessToken"], token.as_str());
        // One wake for all; who comes later finds it running.
        let wakes = tokio::join!(sandbox.wake(), sandbox.wake());
        let mut statuses = [wakes.0.status.as_u16(), wakes.1.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 201]);
        assert_eq!(sandbox.lifetime().await, 300, "max(300 s, 60 s), not the 7 s of the call");
        assert_eq!(sandbox.inside().await["wakes"], 2 * wake);
        assert_eq!(sandbox.detail().await.body["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
    }
    assert_eq!(sandbox.post("pause").await.status, 204);
    assert_eq!(sandbox.post_with("connect", json!({ "timeout": 40 })).await.status, 201);
    assert_eq!(sandbox.lifetime().await, 40, "the owner's timeout counts");
    assert_eq!(sandbox.post_with("timeout", json!({ "timeout": 20 })).await.status, 204);
    assert_eq!(sandbox.lifetime().await, 20, "set_timeout may shorten");
    assert_eq!(sandbox.post_with("refreshes", json!({ "duration": 50 })).await.status, 204);
    assert!(sandbox.lifetime().await >= 50);
    assert_eq!(sandbox.post("pause").await.status, 204);
    assert_eq!(sandbox.post("resume").await.status, 201);
    assert_eq!(sandbox.kill().await.status, 204);
    assert_eq!(sandbox.kill().await.told(), (404, "killed"));
    for call in ["pause", "connect", "resume", "refreshes"] {
        assert_eq!(sandbox.post(call).await.told(), (404, "killed"), "{call}");
    }
    assert_eq!(sandbox.wake().await.told(), (404, "killed"));
    assert_eq!(api.get("/sandboxes/unknown1").await.told(), (404, "unknown"));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_auto_resume_traffic_wakes_nothing() {
    let ground = Ground::start(&[]).await;
    let sandbox = ground.api.create(json!({ "templateID": "base", "autoPause": true })).await;
    assert_eq!(sandbox.wake().await.status, 200, "it runs");
    assert_eq!(sandbox.post("pause").await.status, 204);
    assert_eq!(sandbox.wake().await.told(), (404, "auto_resume_off"));
    assert_eq!(sandbox.state().await, "paused");
    assert_eq!(sandbox.post("connect").await.status, 201);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeout_kills_or_pauses_and_the_retention_ends_a_pause() {
    let ground = Ground::start(&["--retention", "1s"]).await;
    let killed = ground.api.create(json!({ "templateID": "base", "timeout": 1 })).await;
    let paused = ground.api.create(json!({ "templateID": "base", "timeout": 1, "autoPause": true })).await;
    until("one is killed", async || killed.detail().await.told() == (404, "killed")).await;
    until("one is paused", async || paused.state().await == "paused").await;
    until("its retention ends", async || paused.detail().await.told() == (404, "expired")).await;
    let expired = paused.wake().await;
    assert_eq!(expired.told(), (404, "expired"));
    assert!(expired.says("its retention is over"), "{}", expired.body);
    let now = ground.api.create(json!({ "templateID": "base", "autoPause": true })).await;
    assert_eq!(now.post_with("timeout", json!({ "timeout": -3 })).await.status, 204);
    until("no time left is now", async || now.state().await == "paused").await;
    ground.playground.shutdown().await;
    let ground = Ground::start(&[]).await;
    let now = ground.api.sleeper("base").await;
    assert_eq!(now.post("pause").await.status, 204);
    assert_eq!(now.post_with("connect", json!({ "timeout": 0 })).await.status, 201);
    until("so it is after a wake", async || now.state().await == "paused").await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transitions_are_waited_for_and_then_told() {
    let ground = Ground::start(&["--pause-delay", "400ms", "--resume-delay", "300ms"]).await;
    let sandbox = ground.api.sleeper("base").await;
    let begun = Instant::now();
    let waiting = async {
        until("it is pausing", async || sandbox.inside().await["phase"] == "pausing").await;
        assert_eq!(sandbox.state().await, "running", "never a third word");
        sandbox.post("connect").await.status
    };
    let (paused, connected) = tokio::join!(sandbox.post("pause"), waiting);
    assert_eq!((paused.status.as_u16(), connected.as_u16()), (204, 201));
    assert!(begun.elapsed() >= Duration::from_millis(700));
    ground.playground.shutdown().await;

    let ground = Ground::start(&["--pause-delay", "1h", "--transition-wait", "100ms"]).await;
    let sandbox = ground.api.sleeper("base").await;
    let impatient = async {
        until("it is pausing", async || sandbox.inside().await["phase"] == "pausing").await;
        let told = sandbox.wake().await;
        assert_eq!(told.told(), (409, "transitioning"));
        // A kill waits for nobody.
        let killed = timeout(Duration::from_secs(10), sandbox.kill()).await.expect("long before the pause would end");
        assert_eq!(killed.status, 204);
    };
    let (paused, ()) = tokio::join!(sandbox.post("pause"), impatient);
    assert_eq!(paused.told(), (404, "killed"));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_team_s_limit_and_denied_wakes_are_told() {
    let ground = Ground::start(&["--team-limit", "1"]).await;
    let first = ground.api.sleeper("base").await;
    let body = json!({ "templateID": "base" });
    let refused = ground.api.call("POST", "/v2/sandboxes", body.clone()).await;
    assert_eq!(refused.told(), (429, "team_limit"));
    assert!(refused.says("(1)"), "{}", refused.body);
    assert_eq!(first.post("pause").await.status, 204);
    let second = ground.api.create(body).await;
    assert_eq!(first.wake().await.told(), (429, "team_limit"));
    assert_eq!(first.state().await, "paused");
    assert_eq!(second.kill().await.status, 204);
    assert_eq!(first.wake().await.status, 201);
    ground.playground.shutdown().await;

    let ground = Ground::start(&["--deny"]).await;
    let sandbox = ground.api.sleeper("base").await;
    assert_eq!(sandbox.post("pause").await.status, 204);
    let denied = sandbox.wake().await;
    assert_eq!(denied.told(), (403, "not_allow_listed"));
    assert!(denied.says("this account is not allow-listed for traffic wakes"), "{}", denied.body);
    assert_eq!(sandbox.post("connect").await.status, 201);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_calls_are_told_so() {
    let ground = Ground::start(&[]).await;
    let api = &ground.api;
    for body in [
        json!({}),
        json!({ "templateID": "base", "timeout": 0 }),
        json!({ "templateID": "base", "autoResume": { "enabled": true } }),
    ] {
        assert_eq!(api.call("POST", "/sandboxes", body.clone()).await.status, 400, "{body}");
        assert_eq!(api.call("POST", "/v2/sandboxes", body.clone()).await.status, 400, "{body}");
    }
    let unknown = api.call("POST", "/v2/sandboxes", json!({ "templateID": "nope" })).await;
    assert_eq!(unknown.told(), (404, "template_not_found"));
    let big = json!({ "templateID": "base", "metadata": { "a": "x".repeat(100_000) } });
    assert_eq!(api.call("POST", "/v2/sandboxes", big).await.status, 413);
    assert_eq!(api.get("/nowhere").await.status, 404);
    assert_eq!(api.call("PUT", "/sandboxes", Value::Null).await.status, 405);
    assert_eq!(api.get("/sandboxes/%2e%2e%2fetc").await.told(), (404, "unknown"));
    assert_eq!(api.get("/v2/sandboxes?limit=0").await.status, 400);
    assert_eq!(api.get("/v2/sandboxes?state=pausing").await.status, 400);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_web_pages_get_nothing() {
    let ground = Ground::start(&[]).await;
    let api = &ground.api;
    for key in ["", "e2b_0", &api.key[1..]] {
        for path in ["/sandboxes", "/v2/sandboxes", "/playground/sandboxes/x", "/nowhere"] {
            let told = api.call_with("GET", path, Value::Null, &[("X-API-KEY", key)]).await;
            assert_eq!(told.status, 401, "{key:?} {path}");
        }
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1:3000", "0.0.0.0:3000"] {
        let told = api.call_with("GET", "/sandboxes", Value::Null, &[("Host", host)]).await;
        assert_eq!(told.status, 403, "{host}");
    }
    for host in ["localhost:3000", "127.0.0.1:3000", "[::1]:3000"] {
        let told = api.call_with("GET", "/sandboxes", Value::Null, &[("Host", host)]).await;
        assert_eq!(told.status, 200, "{host}");
    }
    let page = [("Origin", "http://localhost:8080"), ("Access-Control-Request-Method", "POST")];
    let preflight = api.call_with("OPTIONS", "/sandboxes", Value::Null, &page).await;
    assert!(preflight.headers.keys().all(|name| !name.as_str().starts_with("access-control")));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_paged() {
    let ground = Ground::start(&[]).await;
    let api = &ground.api;
    let mut made = Vec::new();
    for number in 0..5 {
        let metadata = json!({ "n 1": format!("v%{number}") });
        made.push(api.create(json!({ "templateID": "base", "metadata": metadata })).await);
    }
    assert_eq!(made[0].post("pause").await.status, 204);
    let ids = |answer: &playground_support::Answer| -> Vec<String> {
        let all = answer.body.as_array().expect("a list");
        all.iter().map(|one| one["sandboxID"].as_str().expect("an id").to_owned()).collect()
    };
    let (mut seen, mut query) = (Vec::new(), "/v2/sandboxes?limit=2".to_owned());
    loop {
        let page = api.get(&query).await;
        seen.extend(ids(&page));
        let Some(next) = page.headers.get("x-next-token") else {
            break;
        };
        query = format!("/v2/sandboxes?limit=2&nextToken={}", next.to_str().expect("text"));
    }
    let newest_first: Vec<String> = made.iter().rev().map(|one| one.id.clone()).collect();
    assert_eq!(seen, newest_first);
    assert_eq!(ids(&api.get("/sandboxes").await).len(), 4);
    assert_eq!(ids(&api.get("/v2/sandboxes?state=paused").await), [made[0].id.clone()]);
    assert_eq!(ids(&api.get("/v2/sandboxes?state=running%2Cpaused").await).len(), 5);
    let found = api.get("/v2/sandboxes?metadata=n%25201%3Dv%25253").await;
    assert_eq!(ids(&found), [made[3].id.clone()]);
    ground.playground.shutdown().await;
}
