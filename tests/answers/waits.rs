//! How long a request waits for a wake: what it says itself, and what becomes of the wake.

use std::time::Duration;

use http_body_util::Full;
use tokio::time::Instant;

use crate::{
    asking::{BOTH, Fields, Over, ask, get, outcome},
    support::{
        Answer, DIRECT, Proxy, Server, World,
        control_plane::{ControlPlane, Gate, Step},
        eventually,
        http2::{Http2, connect},
        request, send,
    },
};

const ASYNC: &[(&str, &str)] = &[("x-sandbox-wake", "async")];

/// Asks for a sandbox that a busy catalog tells of only when the request already waits.
async fn ask_while_it_is_looked_for(world: &World, over: Over, sandbox: &str, fields: Fields<'_>) -> Answer {
    let gate = Gate::closed();
    world.control.sandbox(sandbox).always_looks_up(Step::Truly.after(&gate));
    let found = async {
        world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    };
    tokio::join!(ask(&world.proxy, over, ("GET", 8000, sandbox, "/"), fields), found).0
}

/// Asks again until the sandbox answers.
async fn served(world: &World, sandbox: &str) {
    eventually("the next request is served", async || get(&world.proxy, sandbox, ASYNC).await.status == 200).await;
}

#[tokio::test]
async fn async_starts_the_wake_and_is_told_at_once() {
    let world = World::new("").await;
    for (over, id) in [(Over::Http1, "one"), (Over::Http2, "two")] {
        let gate = Gate::closed();
        let sandbox = world.control.sandbox(id);
        sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let asked = Instant::now();
        let answer = ask(&world.proxy, over, ("POST", 8000, id, "/"), ASYNC).await;
        assert_eq!(outcome(&answer), (503, "waking"));
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        assert_eq!((&answer.json()["retryable"], answer.headers.contains_key("retry-after")), (&true.into(), true));
        sandbox.connects_become(1).await;
        // It joins the wake under way, and is told the same.
        assert_eq!(outcome(&get(&world.proxy, id, ASYNC).await), (503, "waking"));
        gate.open();
        served(&world, id).await;
        assert_eq!(sandbox.connects(), 1);
    }
    let seen = world.node.seen.lock().expect("no panic").clone();
    assert!(seen.iter().all(|head| !head.headers.contains_key("x-sandbox-wake")), "{seen:?}");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn async_goes_for_upgrades_and_streams_too() {
    let world = World::new("").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let upgrade = [ASYNC, &[("connection", "upgrade"), ("upgrade", "websocket")]].concat();
    let answer = ask(&world.proxy, Over::Http1, ("GET", 8000, "abc", "/"), &upgrade).await;
    assert_eq!((outcome(&answer), &answer.json()["error"]), ((503, "waking"), &"waking".into()));
    let mut socket = connect("websocket", "abc", "/");
    socket.headers_mut().insert("x-sandbox-wake", http::HeaderValue::from_static("async"));
    assert_eq!(outcome(&Http2::connect(world.proxy.address).await.send(socket).await), (503, "waking"));
    let stream = [ASYNC, &[("content-type", "application/connect+json")]].concat();
    let answer = ask(&world.proxy, Over::Http2, ("POST", 8000, "abc", "/"), &stream).await;
    assert_eq!((outcome(&answer), answer.body[0]), ((200, "waking"), 2));
    gate.open();
    served(&world, "abc").await;
    assert_eq!(sandbox.connects(), 1);
}

#[tokio::test]
async fn async_wakes_also_what_has_to_wait_for_its_turn() {
    let world = World::new("resume.max_concurrent = 1\n").await;
    let (first, second) = (Gate::closed(), Gate::closed());
    let (one, two) = (world.control.sandbox("one"), world.control.sandbox("two"));
    one.paused("127.0.0.1").wakes([Step::Truly.after(&first)]);
    two.paused("127.0.0.1").wakes([Step::Truly.after(&second)]);
    assert_eq!(outcome(&get(&world.proxy, "one", ASYNC).await), (503, "waking"));
    one.connects_become(1).await;
    assert_eq!(outcome(&get(&world.proxy, "two", ASYNC).await), (503, "waking"));
    world.proxy.metric_becomes("client_proxy_queued_wakes", 1.0).await;
    assert_eq!(two.connects(), 0);
    first.open();
    two.connects_become(1).await;
    world.proxy.metric_becomes("client_proxy_queued_wakes", 0.0).await;
    second.open();
    served(&world, "two").await;
    served(&world, "one").await;
    world.proxy.is_idle().await;
}

/// A client that polls costs no place, however often it comes.
#[tokio::test]
async fn those_who_were_told_to_come_again_take_no_place() {
    let world = World::new("resume.max_held_per_sandbox = 3\n").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    for _ in 0..20 {
        assert_eq!(outcome(&get(&world.proxy, "abc", ASYNC).await), (503, "waking"));
        let brief = get(&world.proxy, "abc", &[("x-sandbox-wake", "wait=0.01")]).await;
        assert_eq!(outcome(&brief), (504, "hold_timeout"));
    }
    world.proxy.metric_becomes("client_proxy_held_requests", 0.0).await;
    let waiting = async {
        world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(get(&world.proxy, "abc", &[]), waiting);
    assert_eq!((answer.status.as_u16(), sandbox.connects()), (200, 1));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn each_way_to_say_how_long_shortens_the_hold_and_the_wake_goes_on() {
    let world = World::new("").await;
    for (at, (name, value)) in [
        ("x-sandbox-wake", "wait=0.2"),
        ("x-sandbox-wake", "wait=0"),
        ("grpc-timeout", "200m"),
        ("connect-timeout-ms", "200"),
    ]
    .into_iter()
    .enumerate()
    {
        for over in BOTH {
            let id = format!("s{at}{}", u8::from(over == Over::Http2));
            let gate = Gate::closed();
            let sandbox = world.control.sandbox(&id);
            sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
            let asked = Instant::now();
            let answer = ask_while_it_is_looked_for(&world, over, &id, &[(name, value)]).await;
            let took = asked.elapsed();
            assert_eq!(outcome(&answer), (504, "hold_timeout"), "{name}: {value}");
            assert!(answer.headers.contains_key("retry-after"));
            let least = if value == "wait=0" { 0 } else { 200 };
            assert!((Duration::from_millis(least)..Duration::from_secs(5)).contains(&took), "{name}: {took:?}");
            sandbox.connects_become(1).await;
            gate.open();
            assert_eq!(get(&world.proxy, &id, &[]).await.status, 200);
            // What runs is served, whatever it says, also when it has to be looked for.
            let running = format!("r{id}");
            world.control.sandbox(&running).running("127.0.0.1");
            let answer = ask_while_it_is_looked_for(&world, over, &running, &[(name, value)]).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()), "{name}: {value}");
        }
    }
    for head in &*world.node.seen.lock().expect("no panic") {
        assert!(!head.headers.contains_key("x-sandbox-wake"), "{head:?}");
        let own = head.uri.path();
        assert_eq!(own, "/");
    }
    let seen = world.node.seen.lock().expect("no panic").clone();
    for name in ["grpc-timeout", "connect-timeout-ms"] {
        assert!(seen.iter().any(|head| head.headers.contains_key(name)), "{name} is the sandbox's to read");
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn nobody_is_held_longer_than_the_operator_says() {
    let world = World::new("resume.hold_timeout = \"200ms\"\n").await;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    for fields in [("x-sandbox-wake", "wait=30"), ("grpc-timeout", "1H"), ("connect-timeout-ms", "30000")] {
        assert_eq!(outcome(&get(&world.proxy, "abc", &[fields]).await), (504, "hold_timeout"));
    }
    gate.open();
    served(&world, "abc").await;
    world.proxy.is_idle().await;
}

/// Direct mode looks for a silent sandbox again; that it is looked for is no wake to wait for.
#[tokio::test]
async fn who_waits_for_no_wake_still_waits_for_an_application_that_thinks() {
    let control = ControlPlane::start().await;
    let thinks = Gate::closed();
    let app = Server::gated(&thinks).await;
    let impatient = "cache.ttl = \"50ms\"\ncache.negative_ttl = \"50ms\"\n";
    let proxy = Proxy::start(&control.config(&format!("{DIRECT}{impatient}")));
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let asked = request("GET", app.address.port(), "abc", "/slow").header("x-sandbox-wake", "wait=0");
    let later = async {
        eventually("it is looked for", async || sandbox.lookups() >= 5).await;
        thinks.open();
    };
    let (answer, ()) = tokio::join!(send(proxy.address, asked.body(Full::default()).expect("a request")), later);
    assert_eq!((answer.status.as_u16(), answer.text(), sandbox.connects()), (200, "hello".into(), 0));
}

#[tokio::test]
async fn retry_after_follows_what_wakes_took_lately() {
    let world = World::new("resume.hold_timeout = \"20s\"\n").await;
    let after = async |at: usize| {
        let id = format!("probe{at}");
        let gate = Gate::closed();
        world.control.sandbox(&id).paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let answer = get(&world.proxy, &id, ASYNC).await;
        gate.open();
        served(&world, &id).await;
        answer.header("retry-after").parse::<u64>().expect("seconds")
    };
    // A second, until one is known; spread over half as long again.
    assert!((1..=2).contains(&after(0).await));
    let slow = async |id: String| {
        let gate = Gate::closed();
        let sandbox = world.control.sandbox(&id);
        sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let later = async {
            sandbox.connects_become(1).await;
            // How long it takes is what the proxy is to learn.
            tokio::time::sleep(Duration::from_millis(4500)).await;
            gate.open();
        };
        tokio::join!(get(&world.proxy, &id, &[]), later);
    };
    let mut all = Vec::new();
    for at in 0..6 {
        all.push(slow(format!("slow{at}")));
    }
    futures_util::future::join_all(all).await;
    let now = after(1).await;
    assert!((3..=8).contains(&now), "{now}");
}
