//! One sandbox sleeps and somebody asks for it: every way in which its wake can end.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    self, Answer, REMEMBER, World,
    control_plane::{Gate, Step},
};

fn assert_refused(answer: &Answer, status: u16, error: &str, retry: bool) {
    assert_eq!((answer.status.as_u16(), answer.error()), (status, error.to_owned()), "{}", answer.text());
    assert_eq!(answer.header("retry-after").is_empty(), !retry, "{:?}", answer.headers);
    assert_eq!(answer.json()["retryable"], retry);
}

#[tokio::test]
async fn a_paused_sandbox_is_woken_and_answers_as_if_nothing_had_happened() {
    let world = World::new(REMEMBER).await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let asked = world.get("abc");
    let opened = async {
        sandbox.connects_become(1).await;
        world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    };
    let (held, ()) = tokio::join!(asked, opened);
    assert_eq!((held.status.as_u16(), held.text()), (200, "hello".into()));
    let timing = held.header("server-timing");
    assert!(timing.starts_with("hold;dur=") && timing.contains(", resume;dur="), "{timing}");
    let next = world.get("abc").await;
    assert_eq!((next.status.as_u16(), next.header("server-timing")), (200, ""));
    assert_eq!(world.node.requests(), 2);
    assert_eq!(world.proxy.count("client_proxy_wakes_total{outcome=\"ok\"}").await, 1);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn what_traffic_may_not_wake_is_told_and_not_woken() {
    let world = World::new("").await;
    for (n, lifecycle) in [
        Value::Null,
        json!({}),
        json!({ "autoResume": null }),
        json!({ "autoResume": false }),
        json!({ "autoResume": "any" }),
        json!({ "autoResume": 1 }),
        json!({ "autoResume": { "enabled": true } }),
        json!("autoResume"),
        json!(true),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{n}");
        world.control.sandbox(&id).paused("127.0.0.1").set("/lifecycle", lifecycle.clone());
        let answer = world.get(&id).await;
        assert_refused(&answer, 502, "sandbox_not_found", false);
        assert_eq!(answer.json()["reason"], "auto_resume_off", "{lifecycle}");
        assert!(answer.header("proxy-status").contains("reason=auto_resume_off"));
    }
    assert_eq!(world.node.requests(), 0);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn final_refusals_of_a_wake_are_answered_at_once_and_remembered() {
    let world = World::new(REMEMBER).await;
    let words = "Your team runs 20 sandboxes, its limit";
    for (n, (step, status, error, retry, reason)) in [
        (Step::error(403, "blocked"), 403, "access_denied", false, Value::Null),
        (Step::error(404, "no"), 502, "sandbox_not_found", false, json!("unknown")),
        (Step::gone("killed"), 502, "sandbox_not_found", false, json!("killed")),
        (Step::gone("expired"), 502, "sandbox_not_found", false, json!("expired")),
        (Step::gone("filesystem_only"), 502, "sandbox_not_found", false, json!("filesystem_only")),
        (Step::gone("auto_resume_off"), 502, "sandbox_not_found", false, json!("auto_resume_off")),
        (Step::error(429, words), 429, "team_limit", false, Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{n}");
        let sandbox = world.control.sandbox(&id);
        sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([step]);
        for _ in 0..5 {
            let answer = world.get(&id).await;
            assert_refused(&answer, status, error, retry);
            assert_eq!(answer.json()["reason"], reason);
            let message = answer.json()["message"].as_str().expect("a message").to_owned();
            assert!(if status == 429 { message == words } else { status != 502 || message.contains("was not found") });
        }
    }
    assert_eq!(world.node.requests(), 0);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_final_refusal_is_forgotten_after_its_time() {
    let world = World::new("cache.negative_ttl = \"50ms\"\n").await;
    for (id, step) in [("a", Step::error(404, "no")), ("b", Step::error(429, "full")), ("c", Step::error(403, "no"))] {
        let sandbox = world.control.sandbox(id);
        sandbox.paused("127.0.0.1").wakes([step, Step::Truly]);
        assert_ne!(world.get(id).await.status, 200);
        support::eventually("it is asked for again", async || world.get(id).await.status == 200).await;
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn transitions_are_waited_out() {
    let world = World::new(REMEMBER).await;
    let sandbox = world.control.sandbox("abc");
    let conflict = Step::conflict;
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([conflict(), conflict(), conflict(), Step::Truly]);
    assert_eq!(world.get("abc").await.status, 200);
    assert_eq!(world.proxy.count("client_proxy_wakes_total{outcome=\"transitioning\"}").await, 3);
    assert_eq!(world.node.requests(), 1);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_transition_that_does_not_end_is_told_at_the_end_of_the_hold_time() {
    let world = World::new("resume.hold_timeout = \"700ms\"\n").await;
    world.control.sandbox("abc").paused("127.0.0.1").always_wakes(Step::conflict());
    let start = Instant::now();
    assert_refused(&world.get("abc").await, 409, "still_transitioning", true);
    assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    let calls = world.control.sandbox("abc").connects();
    assert!((2..20).contains(&calls), "{calls} calls: neither given up at once nor hammered");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_control_plane_that_fails_is_never_the_sandbox_s_end() {
    let world = World::new("cache.negative_ttl = \"50ms\"\n").await;
    let elsewhere = json!({ "sandboxID": "another", "nodeIP": "127.0.0.1", "startedAt": "now" });
    for (n, step) in [
        Step::error(500, "oops"),
        Step::error(502, "oops"),
        Step::error(503, "oops"),
        Step::error(504, "oops"),
        Step::error(400, "what?"),
        Step::error(401, "who?"),
        Step::Garbage,
        Step::Tells(201, json!([])),
        Step::Tells(201, elsewhere),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{n}");
        let sandbox = world.control.sandbox(&id);
        sandbox.paused("127.0.0.1").wakes([step, Step::Truly]);
        assert_refused(&world.get(&id).await, 503, "control_plane_unavailable", true);
        support::eventually("it recovers", async || world.get(&id).await.status == 200).await;
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_wake_that_hangs_goes_on_for_the_next_request() {
    let world = World::new("resume.hold_timeout = \"1s\"\n").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let start = Instant::now();
    let given_up = world.get("abc").await;
    assert_refused(&given_up, 504, "hold_timeout", true);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    let timing = given_up.header("server-timing");
    // Until its time was over, which began a moment before it was held.
    let held = timing.strip_prefix("hold;dur=").and_then(|held| held.parse::<f64>().ok());
    assert!(held.is_some_and(|held| (900.0..5000.0).contains(&held)), "it was held and saw no wake: {timing}");
    world.proxy.is_idle().await;
    let opened = async {
        world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    };
    let (next, ()) = tokio::join!(world.get("abc"), opened);
    assert_eq!((next.status.as_u16(), sandbox.connects()), (200, 1));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_sandbox_without_a_node_is_unavailable() {
    let world = World::new(REMEMBER).await;
    for (id, node) in [("empty", json!("")), ("blank", json!("  ")), ("null", Value::Null)] {
        world.control.sandbox(id).running("127.0.0.1").set("/nodeIP", node);
        assert_refused(&world.get(id).await, 503, "node_unavailable", true);
    }
    // Woken, and neither the wake nor the lookup after it names a node.
    let sandbox = world.control.sandbox("woken");
    sandbox.paused("").wakes([Step::Truly]);
    assert_refused(&world.get("woken").await, 503, "node_unavailable", true);
    for (id, node) in [("word", json!("no host")), ("number", json!(5)), ("digits", json!("10.0.0.256"))] {
        world.control.sandbox(id).running("127.0.0.1").set("/nodeIP", node);
        assert_refused(&world.get(id).await, 503, "control_plane_unavailable", true);
    }
    world.control.sandbox("garbage").looks_up([Step::Garbage]);
    assert_refused(&world.get("garbage").await, 503, "control_plane_unavailable", true);
    assert_eq!(world.node.requests(), 0);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn news_during_a_wake_makes_its_outcome_old() {
    let world = World::new(REMEMBER).await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly, Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let forgotten = async {
        sandbox.connects_become(1).await;
        let forget =
            http::Request::delete("/sandboxes/abc").header("host", "admin").body(http_body_util::Full::default());
        assert_eq!(support::send(world.proxy.admin, forget.expect("a request")).await.status, 204);
        gate.open();
    };
    let (held, ()) = tokio::join!(world.get("abc"), forgotten);
    assert_eq!((held.status.as_u16(), sandbox.lookups()), (200, 2), "it may have been paused again meanwhile");
    assert_eq!((world.get("abc").await.status.as_u16(), sandbox.connects()), (200, 1));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_wake_whose_answer_names_no_node_is_looked_up() {
    let world = World::new(REMEMBER).await;
    let sandbox = world.control.sandbox("abc");
    let wakes = sandbox.clone();
    let bare = json!({ "sandboxID": "abc", "templateID": "base", "clientID": "c", "envdVersion": "0.6.7" });
    let step = Step::Tells(201, bare).doing(move || {
        wakes.running("127.0.0.1");
    });
    sandbox.paused("127.0.0.1").looks_up([Step::Truly, Step::Truly]).wakes([step]);
    assert_eq!(world.get("abc").await.status, 200);
    assert_eq!(world.get("abc").await.status, 200);
    world.proxy.is_idle().await;
}
