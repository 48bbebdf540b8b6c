//! What wakes: the operator's rules, and what a request says of itself.

use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    asking::{BOTH, Fields, Over, ask, bytes, forget, get, outcome, with},
    support::{
        DIRECT, Proxy, Server, World, answer,
        control_plane::{ControlPlane, Gate, Step},
        eventually, send,
    },
};

const NOT_WOKEN: (u16, &str) = (502, "sandbox_not_found; reason=not_woken");
const RULES: &str = "wake.health_probe = false\nwake.ignore_paths = [\"/favicon.ico\", \"/probe/*\"]\n\
    wake.ignore_user_agents = [\"UptimeRobot\", \"bot/\"]\n";

/// What the rules keep asleep: method, port, path, fields.
const KEPT: &[(&str, u16, &str, Fields<'static>)] = &[
    ("GET", 49983, "/health", &[("user-agent", "connect-python")]),
    ("HEAD", 49983, "/health?a=b", &[]),
    ("GET", 8000, "/favicon.ico", &[]),
    ("POST", 8000, "/favicon.ico?v=2", &[]),
    ("GET", 8000, "/probe/", &[]),
    ("GET", 8000, "/probe/deep/er", &[]),
    ("GET", 8000, "/", &[("user-agent", "Mozilla/5.0 (compatible; uptimerobot/2.0)")]),
    ("GET", 8000, "/", &[("user-agent", "some-bot/1")]),
    ("GET", 8000, "/", &[("user-agent", "some-bot/1"), ("connection", "user-agent")]),
    ("GET", 8000, "/", &[("user-agent", "curl/8.5.0"), ("user-agent", "some-bot/1")]),
];
/// And what they do not.
const WAKES: &[(&str, u16, &str, Fields<'static>)] = &[
    ("POST", 49983, "/health", &[]),
    ("GET", 8000, "/health", &[]),
    ("GET", 8000, "/favicon.ico/", &[]),
    ("GET", 8000, "/probe", &[]),
    ("GET", 8000, "/", &[("user-agent", "Mozilla/5.0 (X11; Linux x86_64)")]),
];

#[tokio::test]
async fn each_rule_keeps_its_traffic_from_waking_and_no_other() {
    let world = World::new(RULES).await;
    world.control.sandbox("abc").paused("127.0.0.1");
    for over in BOTH {
        for (method, port, path, fields) in KEPT {
            // What is nominated by `Connection` is no field of HTTP/2.
            if over == Over::Http1 || !fields.iter().any(|(name, _)| *name == "connection") {
                let answer = ask(&world.proxy, over, (method, *port, "abc", path), fields).await;
                assert_eq!(outcome(&answer), NOT_WOKEN, "{method} {port} {path} {fields:?}");
            }
        }
    }
    for (at, (method, port, path, fields)) in WAKES.iter().enumerate() {
        let id = format!("wakes{at}");
        world.control.sandbox(&id).paused("127.0.0.1").wakes([Step::Truly]);
        let answer = ask(&world.proxy, Over::Http1, (method, *port, &id, path), fields).await;
        assert_eq!(answer.status, 200, "{method} {port} {path} {fields:?}");
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_request_that_says_never_wakes_nothing_and_the_sandbox_never_hears_of_it() {
    let world = World::new("").await;
    world.control.sandbox("abc").paused("127.0.0.1");
    world.control.sandbox("runs").running("127.0.0.1");
    for over in BOTH {
        for value in ["never", "NEVER", " never ", "wait=3, never"] {
            let fields = [("x-sandbox-wake", value), ("x-other", "1")];
            let answer = ask(&world.proxy, over, ("GET", 8000, "abc", "/"), &fields).await;
            assert_eq!(outcome(&answer), NOT_WOKEN, "{value}");
            let answer = ask(&world.proxy, over, ("GET", 8000, "runs", "/"), &fields).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
        }
    }
    let seen = world.node.seen.lock().expect("no panic");
    assert_eq!(seen.len(), 8);
    for head in &*seen {
        assert!(!head.headers.contains_key("x-sandbox-wake") && head.headers.contains_key("x-other"), "{head:?}");
    }
}

#[tokio::test]
async fn what_the_rules_keep_asleep_reaches_what_runs() {
    let world = World::new(RULES).await;
    world.control.sandbox("abc").running("127.0.0.1");
    let control = ControlPlane::start().await;
    let app = Server::start(async |_| answer(200, "hello")).await;
    let direct = Proxy::start(&control.config(&format!("{DIRECT}{RULES}")));
    control.sandbox("abc").running("127.0.0.1");
    for (method, port, path, fields) in KEPT {
        let answer = ask(&world.proxy, Over::Http1, (method, *port, "abc", path), fields).await;
        assert_eq!(answer.status, 200, "{method} {port} {path} {fields:?}");
        if *port == 8000 {
            let answer = ask(&direct, Over::Http1, (method, app.address.port(), "abc", path), fields).await;
            assert_eq!(answer.status, 200, "{method} {path} {fields:?}");
        }
    }
}

/// The sandbox is being woken for somebody else, with the same credentials or with others.
#[tokio::test]
async fn what_may_not_wake_joins_a_wake_that_another_started() {
    let world = World::new(RULES).await;
    for (id, mine, theirs) in [("same", "", ""), ("other", "", "their-t0ken"), ("both", "my-t0ken", "their-t0ken")] {
        let gate = Gate::closed();
        let sandbox = world.control.sandbox(id);
        sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let with = |token: &'static str, more: Fields<'static>| {
            let request = with(("GET", 8000, id, "/"), more);
            let request = if token.is_empty() { request } else { request.header("e2b-traffic-access-token", token) };
            send(world.proxy.address, request.body(bytes("")).expect("a request"))
        };
        let mut waiting = JoinSet::new();
        waiting.spawn(with(theirs, &[]));
        sandbox.connects_become(1).await;
        for fields in [&[("x-sandbox-wake", "never")][..], &[("user-agent", "some-bot/1")]] {
            waiting.spawn(with(mine, fields));
        }
        world.proxy.metric_becomes("client_proxy_held_requests", 3.0).await;
        gate.open();
        for answer in waiting.join_all().await {
            assert_eq!((answer.status.as_u16(), sandbox.connects()), (200, 1), "{id}: {answer:?}");
        }
    }
    world.proxy.is_idle().await;
}

/// Nobody knew yet that there is something to be woken.
#[tokio::test]
async fn what_may_not_wake_joins_whoever_waited_for_the_same_lookup() {
    let world = World::new("").await;
    for at in 0..5 {
        let (looked, gate) = (Gate::closed(), Gate::closed());
        let sandbox = world.control.sandbox(&format!("s{at}"));
        sandbox.paused("127.0.0.1").looks_up([Step::Truly.after(&looked)]).wakes([Step::Truly.after(&gate)]);
        let (address, mut waiting) = (world.proxy.address, JoinSet::new());
        // They are first in every respect.
        for held in 1..=11 {
            let wish = if held == 11 { "wait=30" } else { "never" };
            let request = with(("GET", 8000, &format!("s{at}"), "/"), &[("x-sandbox-wake", wish)]);
            let request = request.body(bytes("")).expect("a request");
            waiting.spawn(async move { (wish, send(address, request).await) });
            world.proxy.metric_becomes("client_proxy_held_requests", f64::from(held)).await;
        }
        looked.open();
        sandbox.connects_become(1).await;
        world.proxy.metric_becomes("client_proxy_held_requests", 11.0).await;
        gate.open();
        for (wish, answer) in waiting.join_all().await {
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()), "{wish}");
        }
        assert_eq!((sandbox.lookups(), sandbox.connects()), (1, 1));
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_wake_that_fails_is_not_tried_again_by_those_who_may_not_wake() {
    let world = World::new("").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::error(403, "no").after(&gate)]);
    let theirs = async { get(&world.proxy, "abc", &[("e2b-traffic-access-token", "their-t0ken")]).await };
    let ours = async {
        sandbox.connects_become(1).await;
        let opened = async {
            world.proxy.metric_becomes("client_proxy_held_requests", 2.0).await;
            gate.open();
        };
        tokio::join!(get(&world.proxy, "abc", &[("x-sandbox-wake", "never")]), opened).0
    };
    let (theirs, ours) = tokio::join!(theirs, ours);
    assert_eq!((outcome(&theirs), outcome(&ours)), ((403, "access_denied"), NOT_WOKEN));
    world.proxy.is_idle().await;
}

/// Direct mode: the kernel of a frozen sandbox takes the request, and nobody reads it.
#[tokio::test]
async fn a_frozen_sandbox_is_not_woken_by_what_may_not_and_served_when_another_wakes_it() {
    let control = ControlPlane::start().await;
    let thaw = Gate::closed();
    let frozen = thaw.clone();
    let app = Server::start(move |_| {
        let frozen = frozen.clone();
        async move {
            frozen.opened().await;
            answer(200, "thawed")
        }
    })
    .await;
    let impatient = "cache.ttl = \"100ms\"\ncache.negative_ttl = \"100ms\"\n";
    let proxy = Proxy::start(&control.config(&format!("{DIRECT}{impatient}")));
    let port = app.address.port();
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let ask_with =
        async |value: &str| ask(&proxy, Over::Http1, ("GET", port, "abc", "/"), &[("x-sandbox-wake", value)]).await;
    let pausing = async {
        eventually("the application has it", async || app.requests() == 1).await;
        sandbox.paused("127.0.0.1");
    };
    let (answer, ()) = tokio::join!(ask_with("never"), pausing);
    assert_eq!(outcome(&answer), NOT_WOKEN);
    assert_eq!(sandbox.connects(), 0);

    sandbox.running("127.0.0.1");
    forget(&proxy, "abc").await;
    sandbox.wakes([Step::Truly.doing(move || thaw.open())]);
    let pausing = async {
        eventually("the application has both", async || app.requests() == 3).await;
        sandbox.paused("127.0.0.1").set("/lifecycle", json!({ "autoResume": true }));
    };
    let (never, other, ()) = tokio::join!(ask_with("never"), ask_with("wait=30"), pausing);
    assert_eq!((other.status.as_u16(), other.text()), (200, "thawed".into()));
    // Whoever looks first finds it asleep, or being woken: both are true answers.
    assert!(never.status == 200 || outcome(&never) == NOT_WOKEN, "{never:?}");
    assert_eq!(sandbox.connects(), 1);
    proxy.is_idle().await;
}
