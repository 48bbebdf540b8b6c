//! The control plane is down, slow, or asked about nobody: never "not found", never a wake because of it.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{self, World, control_plane::Step, eventually};

async fn is_unavailable(world: &World, sandbox: &str) {
    let answer = world.get(sandbox).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "control_plane_unavailable".into()));
    assert!(!answer.header("retry-after").is_empty());
    assert!(!answer.text().contains("not found"), "{}", answer.text());
}

#[tokio::test]
async fn an_unknown_sandbox_is_asked_for_once_in_its_time() {
    let world = World::new("cache.negative_ttl = \"60s\"\n").await;
    let nobody = world.control.sandbox("nobody");
    for _ in 0..20 {
        let answer = world.get("nobody").await;
        assert_eq!((answer.status.as_u16(), answer.error()), (502, "sandbox_not_found".into()));
        assert_eq!((&answer.json()["reason"], answer.header("retry-after")), (&"unknown".into(), ""));
    }
    assert_eq!(nobody.lookups(), 1);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn an_unknown_sandbox_may_come_into_being() {
    let world = World::new("cache.negative_ttl = \"200ms\"\n").await;
    let sandbox = world.control.sandbox("abc");
    let start = Instant::now();
    while sandbox.lookups() < 4 {
        assert_eq!(world.get("abc").await.status, 502);
    }
    assert!(start.elapsed() >= Duration::from_millis(600), "{:?}", start.elapsed());
    sandbox.running("127.0.0.1");
    eventually("it is found", async || world.get("abc").await.status == 200).await;
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn known_routes_outlive_an_outage_and_unknown_ones_are_unavailable() {
    let world = World::new("cache.ttl = \"50ms\"\ncache.negative_ttl = \"50ms\"\n").await;
    world.control.sandbox("known").running("127.0.0.1");
    // Known, too, but not where: nobody may be woken on the strength of old news.
    let asleep = world.control.sandbox("asleep");
    asleep.paused("127.0.0.1").set("/lifecycle", serde_json::json!({ "autoResume": false }));
    assert_eq!((world.get("known").await.status.as_u16(), world.get("asleep").await.status.as_u16()), (200, 502));
    asleep.paused("127.0.0.1");
    world.control.stop().await;
    eventually("what was known of it is too old", async || world.get("asleep").await.status == 503).await;
    for _ in 0..30 {
        assert_eq!(world.get("known").await.status, 200);
        is_unavailable(&world, "unknown").await;
        is_unavailable(&world, "asleep").await;
    }
    assert!(world.proxy.count("client_proxy_lookups_total{outcome=\"error\"}").await >= 3);
    assert_eq!(world.proxy.count("client_proxy_wakes_total").await, 0);

    world.control.restart().await;
    let unknown = world.control.sandbox("unknown");
    unknown.running("127.0.0.1");
    asleep.wakes([Step::Truly]);
    for id in ["known", "unknown", "asleep"] {
        eventually("it recovers", async || world.get(id).await.status == 200).await;
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_known_route_ends_when_the_outage_lasts_too_long() {
    let world =
        World::new("cache.ttl = \"50ms\"\ncache.negative_ttl = \"50ms\"\ncache.stale_if_error = \"700ms\"\n").await;
    let sandbox = world.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let start = Instant::now();
    assert_eq!(world.get("abc").await.status, 200);
    world.control.stop().await;
    let mut served = 0;
    while world.get("abc").await.status == 200 {
        served += 1;
        assert!(start.elapsed() < support::PATIENCE, "it never ends");
    }
    // It was confirmed after the start.
    assert!(served > 0 && start.elapsed() >= Duration::from_millis(700), "{served} in {:?}", start.elapsed());
    for _ in 0..5 {
        is_unavailable(&world, "abc").await;
    }
    assert!(world.node.requests() > served);
    world.control.restart().await;
    eventually("it recovers", async || world.get("abc").await.status == 200).await;
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_lookup_that_hangs_is_given_up_and_the_next_may_succeed() {
    let world = World::new("catalog.rest.timeout = \"300ms\"\ncache.negative_ttl = \"50ms\"\n").await;
    let sandbox = world.control.sandbox("abc");
    sandbox.running("127.0.0.1").looks_up([Step::Hangs, Step::Truly]);
    let start = Instant::now();
    is_unavailable(&world, "abc").await;
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    eventually("it recovers", async || world.get("abc").await.status == 200).await;
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn known_routes_are_served_without_waiting_while_the_catalog_hangs() {
    let limits = "catalog.rest.timeout = \"200ms\"\ncache.ttl = \"50ms\"\ncache.negative_ttl = \"50ms\"\n";
    let world = World::new(limits).await;
    let sandbox = world.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    assert_eq!(world.get("abc").await.status, 200);
    sandbox.always_looks_up(Step::Hangs);
    eventually("the outage begins", async || {
        assert_eq!(world.get("abc").await.status, 200);
        world.proxy.count("client_proxy_lookups_total{outcome=\"error\"}").await >= 1
    })
    .await;
    // From now on nobody is held, though lookups go on hanging, several of them.
    let begun = sandbox.lookups();
    while sandbox.lookups() < begun + 3 {
        let answer = world.get("abc").await;
        assert_eq!((answer.status.as_u16(), answer.header("server-timing")), (200, ""), "it was held");
    }
    sandbox.always_looks_up(Step::Truly);
    eventually("it recovers", async || {
        assert_eq!(world.get("abc").await.status, 200);
        world.proxy.count("client_proxy_lookups_total{outcome=\"running\"}").await >= 2
    })
    .await;
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn lookups_that_fail_in_other_ways_are_outages_too() {
    let world = World::new("cache.ttl = \"50ms\"\ncache.negative_ttl = \"50ms\"\n").await;
    let known = world.control.sandbox("known");
    known.running("127.0.0.1");
    assert_eq!(world.get("known").await.status, 200);
    let odd = |state: &str| Step::Tells(200, serde_json::json!({ "sandboxID": "known", "state": state }));
    for (n, step) in [
        Step::error(500, "oops"),
        Step::error(503, "oops"),
        Step::error(401, "who?"),
        Step::error(403, "no"),
        Step::error(429, "too many"),
        Step::Garbage,
        odd("pausing"),
        odd(""),
    ]
    .into_iter()
    .enumerate()
    {
        known.always_looks_up(step.clone());
        let id = format!("s{n}");
        world.control.sandbox(&id).always_looks_up(step);
        is_unavailable(&world, &id).await;
        let before = known.lookups();
        while known.lookups() < before + 2 {
            assert_eq!(world.get("known").await.status, 200);
        }
    }
    world.proxy.is_idle().await;
}
