//! Calls of the control API as E2B's SDKs make them, beside its main rows (`api.rs`).

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::playground_support::{Answer, Ground};

fn ids(answer: &Answer) -> Vec<&str> {
    let all = answer.body.as_array().expect("a list");
    all.iter().map(|one| one["sandboxID"].as_str().expect("an id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_found_as_sdks_encode_it() {
    let ground = Ground::start(&[]).await;
    let metadata = json!({ "k 1": "v&%+=é", "plain": "yes" });
    let one = ground.api.create(json!({ "templateID": "base", "metadata": metadata })).await;
    ground.api.create(json!({ "templateID": "base", "metadata": { "k 1": "other", "plain": "no" } })).await;
    // As both generations of both SDKs have it on the wire.
    let sdk = "k%2525201%3Dv%252526%252525%25252B%25253D%2525C3%2525A9";
    for query in
        [sdk, "plain=yes", "plain%3Dyes", "plain%3Dyes%26k%2525201%3Dv%252526%252525%25252B%25253D%2525C3%2525A9"]
    {
        let query = query.replace("plain=", "plain%3D");
        for path in ["/sandboxes", "/v2/sandboxes"] {
            assert_eq!(ids(&ground.api.get(&format!("{path}?metadata={query}")).await), [&one.id], "{path} {query}");
        }
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_begin_after_a_moment_in_any_zone() {
    let ground = Ground::start(&[]).await;
    let one = ground.api.create(json!({ "templateID": "base" })).await;
    let at = |time: SystemTime| humantime::format_rfc3339_micros(time).to_string();
    let (hour, now) = (Duration::from_hours(1), SystemTime::now());
    let before = at(now - hour);
    // The same moment in the zone of Tokyo.
    let tokyo = at(now + 8 * hour).replace('Z', "%2B09:00");
    for (time, want) in [(&before, 1), (&tokyo, 1), (&at(now + hour), 0)] {
        let list = ground.api.get(&format!("/v2/sandboxes?startedAfter={time}")).await;
        assert_eq!(ids(&list), vec![one.id.as_str(); want], "{time}");
    }
    assert_eq!(ground.api.get("/v2/sandboxes?startedAfter=yesterday").await.status, 400);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sandbox_uses_is_measured_while_it_runs() {
    let ground = Ground::start(&["--template", "busy=while :; do :; done"]).await;
    let api = &ground.api;
    let busy = api.create(json!({ "templateID": "busy" })).await;
    let path = format!("/sandboxes/{}/metrics", busy.id);
    let measured = api.get(&path).await.body;
    let one = &measured[0];
    assert_eq!(measured.as_array().map(Vec::len), Some(1));
    for name in ["cpuCount", "cpuUsedPct", "memUsed", "memTotal", "diskUsed", "diskTotal", "timestampUnix"] {
        assert!(one[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {one}");
    }
    assert!(one["timestamp"].is_string() && one["memCache"].is_u64());
    assert_eq!(api.get(&format!("{path}?end=1000000000")).await.body, json!([]), "nothing is recorded");
    assert_eq!(api.get(&format!("{path}?start=x")).await.status, 400);
    let idle = api.create(json!({ "templateID": "base" })).await;
    let envd = async || {
        let url = format!("http://{}:49983/metrics", busy.ip);
        let answer = api.client.get(url).header("X-Access-Token", &busy.token).send().await.expect("an answer");
        answer.json::<Value>().await.expect("JSON")
    };
    envd().await;
    let several = api.get(&format!("/sandboxes/metrics?sandbox_ids={},{},unknown", busy.id, idle.id)).await.body;
    let several = several["sandboxes"].as_object().expect("an object");
    let percent = |id: &str| several[id]["cpuUsedPct"].as_f64().expect("a number");
    assert!(several.len() == 2 && percent(&busy.id) > percent(&idle.id), "{several:?}");
    // Of all processors, here and in the sandbox; the clock has ticks of 10 ms.
    let inside = envd().await;
    let share = 125.0 / inside["cpu_count"].as_f64().expect("a number");
    let used = inside["cpu_used_pct"].as_f64().expect("a number");
    assert!(used > 0.0 && used < share && percent(&busy.id) < share, "{inside} {several:?}");
    assert_eq!(inside["mem_total"], measured[0]["memTotal"]);
    assert_eq!(busy.post("pause").await.status, 204);
    assert_eq!(api.get(&path).await.body, json!([]), "it sleeps");
    assert_eq!(api.get("/sandboxes/unknown/metrics").await.told(), (404, "unknown"));
    assert_eq!(api.get("/sandboxes/metrics").await.status, 400);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_start_a_sandbox_without_its_memory() {
    let ground = Ground::start(&["--team-limit", "1"]).await;
    let sandbox = ground.api.sleeper("counter").await;
    assert_eq!(sandbox.count().await, 1);
    assert_eq!(sandbox.post("pause").await.status, 204);
    let without = json!({ "timeout": 60, "memory": false });
    // No room: it stays what it was.
    let other = ground.api.create(json!({ "templateID": "base" })).await;
    assert_eq!(sandbox.post_with("connect", without.clone()).await.told(), (429, "team_limit"));
    assert_eq!(other.kill().await.status, 204);
    assert_eq!(sandbox.wake().await.status, 201);
    assert_eq!(sandbox.count().await, 2, "with its memory");
    assert_eq!(sandbox.post_with("connect", without.clone()).await.status, 200, "it runs: nothing is lost");
    assert_eq!(sandbox.count().await, 3);
    assert_eq!(sandbox.post("pause").await.status, 204);
    let before = sandbox.processes().await;
    assert_eq!(sandbox.post_with("connect", without).await.status, 201);
    let after = sandbox.processes().await;
    assert!(after.len() == before.len() && after.iter().all(|process| !before.contains(process)), "{after:?}");
    let ip = sandbox.detail().await.body["nodeIP"].as_str().expect("a node").to_owned();
    let answer = ground.api.client.get(format!("http://{ip}:8000/")).send().await.expect("an answer");
    assert_eq!(answer.text().await.expect("a body").trim(), "1");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_is_told_as_sdks_read_it() {
    let ground = Ground::start(&["--team-limit", "1"]).await;
    let api = &ground.api;
    // `call` looks for a whole number and a message in each.
    for (path, status) in [
        ("/v2/sandboxes?state=running&state=paused", 400),
        ("/v2/sandboxes?nextToken=x", 400),
        ("/v2/sandboxes?order=up", 400),
        ("/sandboxes/%ff", 404),
        ("/sandboxes/%ff/metrics", 404),
        ("/sandboxes/api", 404),
    ] {
        assert_eq!(api.get(path).await.status, status, "{path}");
    }
    let one = api.create(json!({ "templateID": "base", "network": { "denyOut": ["1.1.1.1"] } })).await;
    let told = one.detail().await.body["network"].clone();
    assert_eq!(told, json!({ "allowPublicTraffic": true, "denyOut": ["1.1.1.1"] }), "as it was created");
    for call in ["snapshots", "fork"] {
        assert_eq!(one.post(call).await.told(), (501, "not_implemented"), "{call}");
    }
    let changed = api.call("PUT", &format!("/sandboxes/{}/network", one.id), json!({})).await;
    assert_eq!(changed.told(), (501, "not_implemented"));
    let refused = api.call("POST", "/v2/sandboxes", json!({ "templateID": "base" })).await;
    assert_eq!(refused.told(), (429, "team_limit"));
    assert_eq!(refused.headers["should-retry"], "false", "Python's SDK tries no more");
    assert_eq!(api.call("POST", "/v2/sandboxes", Value::String("x".to_owned())).await.status, 400);
    ground.playground.shutdown().await;
}
