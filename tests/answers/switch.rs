//! `PUT /wake`: the emergency switch on the admin listener.

use http::Method;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::{
    asking::{get, outcome},
    support::{
        Answer, Proxy, World,
        control_plane::{Gate, Step},
        eventually, send,
    },
};

const TOKEN: &str = "switch-t0ken";
const SUSPENDED: &str = "client_proxy_wakes_suspended";

async fn wake(proxy: &Proxy, method: Method, body: &str, token: Option<&str>) -> Answer {
    let mut request = http::Request::builder().method(method).uri("/wake").header("host", "admin");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    send(proxy.admin, request.body(Full::from(body.to_owned())).expect("a request")).await
}

async fn put(proxy: &Proxy, body: &Value) -> Answer {
    wake(proxy, Method::PUT, &body.to_string(), None).await
}

#[tokio::test]
async fn while_it_is_off_nothing_is_woken_and_what_runs_is_served() {
    let world = World::new("cache.negative_ttl = \"1ms\"\n").await;
    let proxy = &world.proxy;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly]);
    world.control.sandbox("runs").running("127.0.0.1");
    world.control.sandbox("slow").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    assert_eq!(outcome(&get(proxy, "slow", &[("x-sandbox-wake", "async")]).await), (503, "waking"));

    assert_eq!(wake(proxy, Method::GET, "", None).await.json(), json!({ "enabled": true, "until": null }));
    let off = put(proxy, &json!({ "enabled": false, "for": "10m" })).await;
    assert_eq!((off.status.as_u16(), &off.json()["enabled"]), (200, &json!(false)));
    assert!(off.json()["until"].as_str().is_some_and(|until| until.ends_with('Z')), "{off:?}");
    assert_eq!(wake(proxy, Method::GET, "", None).await.json(), off.json());
    assert_eq!(proxy.count(SUSPENDED).await, 1);

    let refused = get(proxy, "abc", &[]).await;
    assert_eq!((outcome(&refused), refused.error()), ((503, "wakes_suspended"), "wakes_suspended".into()));
    let after: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((300..=450).contains(&after), "bounded, and spread: {after}");
    assert_eq!(get(proxy, "runs", &[]).await.status, 200);
    // A wake that was called for before goes on, and others join it.
    let joined = tokio::join!(get(proxy, "slow", &[]), async {
        proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    });
    assert_eq!(joined.0.status, 200);
    // The end of the former time is not that of the next.
    assert_eq!(put(proxy, &json!({ "enabled": false, "for": "20m" })).await.status, 200);
    assert_eq!(wake(proxy, Method::DELETE, "", None).await.json(), json!({ "enabled": true, "until": null }));
    assert_eq!((get(proxy, "abc", &[]).await.status.as_u16(), proxy.count(SUSPENDED).await), (200, 0));
    proxy.is_idle().await;
}

#[tokio::test]
async fn it_ends_by_itself_or_by_word() {
    let world = World::new("").await;
    let proxy = &world.proxy;
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly]);
    assert_eq!(put(proxy, &json!({ "enabled": false, "for": "400ms" })).await.json()["enabled"], false);
    assert_eq!(outcome(&get(proxy, "abc", &[]).await), (503, "wakes_suspended"));
    proxy.metric_becomes(SUSPENDED, 0.0).await;
    assert_eq!(wake(proxy, Method::GET, "", None).await.json(), json!({ "enabled": true, "until": null }));
    assert_eq!(get(proxy, "abc", &[]).await.status, 200);
    for end in [json!({ "enabled": true }), json!({ "enabled": true, "for": null })] {
        assert_eq!(put(proxy, &json!({ "enabled": false })).await.json()["enabled"], false);
        assert_eq!(put(proxy, &end).await.json(), json!({ "enabled": true, "until": null }));
        assert_eq!(proxy.count(SUSPENDED).await, 0);
    }
}

#[tokio::test]
async fn what_waits_for_its_turn_when_it_is_switched_off_is_not_woken() {
    let world = World::new("resume.max_concurrent = 1\n").await;
    let gate = Gate::closed();
    world.control.sandbox("one").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("two").paused("127.0.0.1");
    assert_eq!(outcome(&get(&world.proxy, "one", &[("x-sandbox-wake", "async")]).await), (503, "waking"));
    let off = async {
        world.proxy.metric_becomes("client_proxy_queued_wakes", 1.0).await;
        put(&world.proxy, &json!({ "enabled": false })).await;
        gate.open();
    };
    let (two, ()) = tokio::join!(get(&world.proxy, "two", &[]), off);
    assert_eq!(outcome(&two), (503, "wakes_suspended"));
    world.proxy.metric_becomes("client_proxy_queued_wakes", 0.0).await;
    eventually("the first is awake", async || get(&world.proxy, "one", &[]).await.status == 200).await;
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn what_it_cannot_read_changes_nothing() {
    let world = World::new("").await;
    let large = format!("{{\"enabled\": false, \"for\": \"{}\"}}", "1".repeat(5000));
    for (body, status) in [
        ("", 400),
        ("{}", 400),
        ("false", 400),
        ("{\"enabled\": \"no\"}", 400),
        ("{\"enabled\": false, \"until\": \"15m\"}", 400),
        ("{\"enabled\": false, \"for\": 15}", 400),
        ("{\"enabled\": false, \"for\": \"0s\"}", 400),
        ("{\"enabled\": false, \"for\": \"-1m\"}", 400),
        ("{\"enabled\": false, \"for\": \"25h\"}", 400),
        ("{\"enabled\": false, \"for\": \"for ever\"}", 400),
        ("{\"enabled\": true, \"for\": \"15m\"}", 400),
        ("{\"enabled\": false} {}", 400),
        (&*large, 413),
    ] {
        let answer = wake(&world.proxy, Method::PUT, body, None).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
    let posted = wake(&world.proxy, Method::POST, "{\"enabled\": false}", None).await;
    assert_eq!(posted.status, 405);
    assert_eq!(wake(&world.proxy, Method::GET, "", None).await.json()["enabled"], true);
    assert_eq!(world.proxy.count(SUSPENDED).await, 0);
}

#[tokio::test]
async fn it_takes_the_operators_token() {
    let world = World::new(&format!("admin.token = \"{TOKEN}\"\n")).await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        for token in [None, Some("wrong"), Some("")] {
            let answer = wake(&world.proxy, method.clone(), "{\"enabled\": false}", token).await;
            assert_eq!(answer.status, 401, "{method} {token:?}");
            assert!(!answer.text().contains(TOKEN));
        }
    }
    assert_eq!(world.proxy.count(SUSPENDED).await, 0);
    let off = wake(&world.proxy, Method::PUT, "{\"enabled\": false}", Some(TOKEN)).await;
    assert_eq!((off.status.as_u16(), world.proxy.count(SUSPENDED).await), (200, 1));
    // It is no page of the health listener's, nor a sandbox's.
    let health = crate::support::get(world.proxy.health, "/wake").await;
    assert_eq!(health.text(), "healthy");
    assert_eq!(wake(&world.proxy, Method::DELETE, "", Some(TOKEN)).await.status, 200);
    assert_eq!(world.proxy.count(SUSPENDED).await, 0);
}
