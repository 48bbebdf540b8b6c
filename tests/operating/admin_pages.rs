//! The admin pages about sandboxes: what an operator reads at night.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

use crate::support::{
    Answer, Proxy, REMEMBER, World,
    control_plane::{Gate, Step},
    eventually, get, send,
    wire::{Node, node_mode},
};

/// `method path` of the admin listener, with the token if there is one.
pub(crate) async fn ask(proxy: &Proxy, method: Method, path: &str, token: Option<&str>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("host", proxy.admin.to_string());
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    send(proxy.admin, request.body(Full::default()).expect("a request")).await
}

async fn forget(proxy: &Proxy, sandbox: &str) -> u16 {
    ask(proxy, Method::DELETE, &format!("/sandboxes/{sandbox}"), None).await.status.as_u16()
}

/// A page that there is.
async fn page(proxy: &Proxy, path: &str) -> Value {
    let answer = get(proxy.admin, path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!((answer.header("content-type"), answer.header("cache-control")), ("application/json", "no-store"));
    answer.json()
}

/// The ids of a list.
fn ids(list: &Value) -> Vec<String> {
    let sandboxes = list["sandboxes"].as_array().expect("a list");
    sandboxes.iter().map(|one| one["sandboxId"].as_str().expect("an id").to_owned()).collect()
}

/// The history: `event cause before>after` of each record, and how often.
fn told(view: &Value) -> Vec<(String, u64)> {
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_else(|| panic!("{key}: {record}")).to_owned();
    let line = |record: &Value| {
        let of = |key| text(record, key);
        (
            format!("{} {} {}>{}", of("event"), of("cause"), of("before"), of("after")),
            record["times"].as_u64().expect("a count"),
        )
    };
    view["history"].as_array().expect("a history").iter().map(line).collect()
}

/// The same without the counts.
pub(crate) fn lines(view: &Value) -> Vec<String> {
    told(view).into_iter().map(|(line, _)| line).collect()
}

#[tokio::test]
async fn a_wake_can_be_read_as_a_story() {
    let world = World::new(&format!("{REMEMBER}resume.hold_timeout = \"5s\"\n")).await;
    let sandbox = world.control.sandbox("abc");
    let down = Step::error(500, "not today");
    sandbox.paused("127.0.0.1").wakes([down, Step::Truly]);
    assert_eq!(world.get("abc").await.status, 503);
    assert_eq!(forget(&world.proxy, "abc").await, 204);
    assert_eq!(world.get("abc").await.status, 200);
    assert_eq!(world.get("abc").await.status, 200);
    let view = page(&world.proxy, "/sandboxes/abc").await;
    let story = [
        "lookup_started wanted unknown>locating",
        "lookup_ended asleep locating>asleep",
        "wake_started user_port asleep>resuming",
        "wake_ended unavailable resuming>refusing",
        "refused unavailable refusing>refusing",
        "forgotten operator refusing>unknown",
        "lookup_started wanted unknown>locating",
        "lookup_ended asleep locating>asleep",
        "wake_started user_port asleep>resuming",
        "wake_ended ok resuming>running",
    ];
    assert_eq!(lines(&view), story, "{view:#}");
    let history = view["history"].as_array().expect("a history");
    let last = history.last().expect("a record");
    assert_eq!(last["node"], "127.0.0.1");
    assert!(last["msAgo"].is_u64());
    let time = |record: &Value| humantime::parse_rfc3339(record["at"].as_str().expect("a time")).expect("RFC 3339");
    assert!(history.iter().all(|record| record["at"].as_str().is_some_and(|at| at.len() == 24)), "milliseconds");
    assert!(history.is_sorted_by_key(time), "oldest first: {view:#}");
    let age = std::time::SystemTime::now().duration_since(time(last)).expect("in the past");
    assert!(age.as_secs() < 60, "{age:?}");
    assert_eq!((&view["requests"], &view["wakes"], &view["held"]), (&3.into(), &2.into(), &0.into()));
    assert_eq!((&view["state"], &view["lastWake"]["outcome"]), (&"running".into(), &"ok".into()));
    assert!(view["wantedMsAgo"].is_u64() && view["lastWake"]["tookMs"].is_u64());
}

#[tokio::test]
async fn what_happens_again_and_again_is_told_once_with_a_count() {
    let world = World::new("cache.ttl = \"20ms\"\n").await;
    let sandbox = world.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let refreshed = |view: &Value| {
        let found = told(view).into_iter().find(|(line, _)| line == "refreshed running running>running");
        found.map_or(0, |(_, times)| times)
    };
    let mut view = Value::Null;
    eventually("40 refreshes", async || {
        assert_eq!(world.get("abc").await.status, 200);
        view = page(&world.proxy, "/sandboxes/abc").await;
        refreshed(&view) >= 40
    })
    .await;
    let lines = lines(&view);
    assert_eq!(lines[..2], ["lookup_started wanted unknown>locating", "lookup_ended running locating>running"]);
    assert!(lines.len() <= 4, "{view:#}");
    let record = &view["history"][2];
    assert!(record["firstAt"].as_str() < record["at"].as_str(), "{record}");
    assert!(view["history"][0]["firstAt"].is_null(), "it happened once");
}

#[tokio::test]
async fn a_report_says_what_was_found() {
    let node = Node::start().await;
    let proxy = node.proxy();
    drop(node);
    assert_eq!(proxy.get(8000, "abc", "/").await.status, 503);
    let view = page(&proxy, "/sandboxes/abc").await;
    let told = lines(&view);
    assert_eq!(told[2..], ["not_there unreachable running>locating", "lookup_ended running locating>running"]);
}

#[tokio::test]
async fn pages_have_every_sandbox_once_while_others_come_and_go() {
    let upstream = Node::start().await;
    let proxy = Proxy::start(&node_mode(upstream.address, REMEMBER));
    let id = |n: usize| format!("s{n:03}");
    for start in (0..500).step_by(50) {
        let names: Vec<_> = (start..start + 50).map(id).collect();
        let answers = join_all(names.iter().map(|name| proxy.get(8000, name, "/"))).await;
        assert!(answers.iter().all(|answer| answer.status == 502));
    }
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let list = page(&proxy, &format!("/sandboxes?state=gone&limit=64{after}")).await;
        let found = ids(&list);
        assert!(found.len() <= 64 && list["sandboxes"][0]["state"] == "gone", "{list}");
        // Meanwhile: one that was seen is void, one comes before the cursor, and one after it.
        assert_eq!(forget(&proxy, &found[0]).await, 204);
        for name in [format!("a{pages}"), format!("z{pages}")] {
            assert_eq!(proxy.get(8000, &name, "/").await.status, 502);
        }
        seen.extend(found);
        pages += 1;
        let Some(next) = list["next"].as_str() else {
            assert!(list["next"].is_null(), "{list}");
            break;
        };
        after = format!("&after={next}");
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "twice: {seen:?}");
    assert!((0..500).all(|n| seen.contains(&id(n))), "not all: {seen:?}");
    // The default is a page of 100; the state of those that are void is another.
    let list = page(&proxy, "/sandboxes").await;
    assert_eq!((ids(&list).len(), list["next"].is_string()), (100, true));
    assert_eq!(ids(&page(&proxy, "/sandboxes?state=unknown&limit=1000").await).len(), pages);
    assert_eq!(ids(&page(&proxy, "/sandboxes?state=running").await), [""; 0]);
}

#[tokio::test]
async fn the_top_tells_who_has_the_most() {
    let world = World::new(REMEMBER).await;
    let gate = Gate::closed();
    for (id, requests) in [("few", 1), ("many", 7), ("some", 3)] {
        world.control.sandbox(id).running("127.0.0.1");
        for _ in 0..requests {
            assert_eq!(world.get(id).await.status, 200);
        }
    }
    let restless = world.control.sandbox("restless");
    restless.paused("127.0.0.1").wakes([Step::error(500, "no"), Step::Truly.after(&gate)]);
    assert_eq!(world.get("restless").await.status, 503);
    forget(&world.proxy, "restless").await;
    let mut held = world.crowd("restless", 5);
    world.proxy.metric_becomes("client_proxy_held_requests", 5.0).await;

    let list = page(&world.proxy, "/top?by=held").await;
    assert_eq!((&list["by"], ids(&list)), (&"held".into(), vec!["restless".to_owned()]));
    assert_eq!(list["sandboxes"][0]["held"], 5);
    let list = page(&world.proxy, "/top?by=wakes").await;
    assert_eq!((ids(&list), &list["sandboxes"][0]["wakes"]), (vec!["restless".to_owned()], &2.into()));
    let list = page(&world.proxy, "/top?by=requests&limit=3").await;
    assert_eq!(ids(&list), ["many", "restless", "some"]);
    let counts: Vec<_> = (0..3).map(|n| list["sandboxes"][n]["requests"].as_u64()).collect();
    assert_eq!(counts, [Some(7), Some(6), Some(3)]);

    gate.open();
    while let Some(answer) = held.join_next().await {
        assert_eq!(answer.expect("no panic").status, 200);
    }
    assert_eq!(ids(&page(&world.proxy, "/top?by=held").await), [""; 0]);
}
