//! Many wait for one sandbox, or each for its own; some of them leave.

use tokio::time::Instant;

use crate::support::{
    self, Proxy, REMEMBER, Raw, World,
    control_plane::{Gate, Step},
    nodes_at, statuses, view_becomes, within_a_second,
};

const HELD: &str = "client_proxy_held_requests";

/// The gauge counts a moment before a request has its place: the sandbox itself must say so.
async fn have_their_places(world: &World, id: &str, held: usize) {
    view_becomes(world.proxy.admin, id, |view| view["held"] == held).await;
}

async fn world(more: &str) -> World {
    support::many_descriptors();
    World::new(&format!("log.access = \"off\"\n{REMEMBER}{more}")).await
}

#[tokio::test]
async fn a_thousand_requests_for_one_sandbox_make_one_wake_and_a_thousand_answers() {
    let world = world("").await;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let crowd = world.crowd("abc", 1000);
    world.proxy.metric_becomes(HELD, 1000.0).await;
    gate.open();
    assert!(statuses(crowd).await.iter().all(|status| *status == 200));
    assert_eq!((world.node.requests(), world.control.sandbox("abc").connects()), (1000, 1));
    assert_eq!(world.proxy.count("client_proxy_wakes_total").await, 1);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn two_hundred_sandboxes_with_five_requests_each_make_two_hundred_wakes() {
    let world = world("").await;
    let ids: Vec<_> = (0..200).map(|n| format!("s{n}")).collect();
    for id in &ids {
        world.control.sandbox(id).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly]);
    }
    let crowds: Vec<_> = ids.iter().map(|id| world.crowd(id, 5)).collect();
    for crowd in crowds {
        assert_eq!(statuses(crowd).await, [200; 5]);
    }
    assert_eq!((world.node.requests(), world.proxy.count("client_proxy_wakes_total").await), (1000, 200));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn the_first_waiter_leaves_and_the_others_are_served() {
    let world = world("resume.max_held_per_sandbox = 3\n").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let mut first = Raw::connect(world.proxy.address).await;
    first.write("GET / HTTP/1.1\r\nhost: 8000-abc.example.test\r\n\r\n").await;
    sandbox.connects_become(1).await;
    let others = world.crowd("abc", 2);
    world.proxy.metric_becomes(HELD, 3.0).await;
    drop(first);
    world.proxy.metric_becomes(HELD, 2.0).await;
    // Its place is free: there were only three.
    let late = world.crowd("abc", 1);
    world.proxy.metric_becomes(HELD, 3.0).await;
    gate.open();
    assert_eq!((statuses(others).await, statuses(late).await), (vec![200; 2], vec![200]));
    assert_eq!(world.node.requests(), 3);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_held_is_noticed_whatever_it_sent() {
    let world = world("").await;
    let host = "host: 8000-abc.example.test\r\n";
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    for (what, sent) in [
        ("a GET", format!("GET / HTTP/1.1\r\n{host}\r\n")),
        ("a POST with its length", format!("POST / HTTP/1.1\r\n{host}content-length: 5\r\n\r\nhello")),
        ("a POST of half its length", format!("POST / HTTP/1.1\r\n{host}content-length: 1000\r\n\r\nhello")),
        ("a POST much longer than any buffer", {
            let body = "x".repeat(100_000);
            format!("POST / HTTP/1.1\r\n{host}content-length: 200000\r\n\r\n{body}")
        }),
        (
            "a chunked POST, all sent",
            format!("POST / HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ),
        ("a chunked POST, half sent", format!("POST / HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n5\r\nhel")),
        (
            "a POST that waits for 100",
            format!("POST / HTTP/1.1\r\n{host}expect: 100-continue\r\ncontent-length: 5\r\n\r\n"),
        ),
        ("a second request behind it", format!("GET / HTTP/1.1\r\n{host}\r\nGET /2 HTTP/1.1\r\n{host}\r\n")),
        ("a body and a second request", {
            format!("POST / HTTP/1.1\r\n{host}content-length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\n{host}\r\n")
        }),
    ] {
        for reset in [false, true] {
            within_a_second(&format!("{what}, reset {reset}"), async || {
                let mut client = Raw::connect(world.proxy.address).await;
                client.write(&sent).await;
                world.proxy.metric_becomes(HELD, 1.0).await;
                let left = Instant::now();
                client.end(reset);
                world.proxy.metric_becomes(HELD, 0.0).await;
                let noticed = left.elapsed();
                world.proxy.is_idle().await;
                noticed
            })
            .await;
        }
    }
    // Nobody is left, and the wake goes on.
    gate.open();
    assert_eq!(world.get("abc").await.status, 200);
    assert_eq!((world.node.requests(), sandbox.connects()), (1, 1));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn beyond_the_sandbox_s_bound_the_next_is_refused_at_once() {
    let world = world("resume.max_held_per_sandbox = 3\n").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("other").paused("127.0.0.1").wakes([Step::Truly]);
    let crowd = world.crowd("abc", 3);
    have_their_places(&world, "abc", 3).await;
    for _ in 0..5 {
        let refused = world.get("abc").await;
        assert_eq!((refused.status.as_u16(), refused.error()), (503, "too_many_held".into()));
        assert!(!refused.header("retry-after").is_empty());
    }
    assert_eq!(world.get("other").await.status, 200, "another sandbox's crowd is none of its business");
    assert_eq!(world.node.requests(), 1, "those held are still held");
    gate.open();
    assert_eq!(statuses(crowd).await, [200; 3]);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn those_who_are_held_keep_their_places_when_the_lookup_becomes_a_wake() {
    let world = world("resume.max_held_per_sandbox = 3\n").await;
    for round in 0..10 {
        let id = format!("s{round}");
        let (looked_up, woken) = (Gate::closed(), Gate::closed());
        let sandbox = world.control.sandbox(&id);
        sandbox.paused("127.0.0.1").looks_up([Step::Truly.after(&looked_up)]).wakes([Step::Truly.after(&woken)]);
        let held = world.crowd(&id, 3);
        have_their_places(&world, &id, 3).await;
        let push = async {
            while sandbox.connects() == 0 {
                assert_eq!(statuses(world.crowd(&id, 4)).await, [503; 4]);
            }
            woken.open();
        };
        let open = async {
            sandbox.lookups_become(1).await;
            looked_up.open();
        };
        tokio::join!(push, open);
        assert_eq!(statuses(held).await, [200; 3]);
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn beyond_the_bound_of_all_the_next_is_refused_without_a_call() {
    let world = world("resume.max_held = 3\n").await;
    let gate = Gate::closed();
    let ids = ["a", "b", "c"];
    for id in ids {
        world.control.sandbox(id).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    }
    world.control.sandbox("running").running("127.0.0.1");
    assert_eq!(world.get("running").await.status, 200);
    let crowds = ids.map(|id| world.crowd(id, 1));
    world.proxy.metric_becomes(HELD, 3.0).await;
    let next = world.control.sandbox("next");
    next.paused("127.0.0.1").looks_up([]).wakes([]);
    for id in ["next", "next", "a"] {
        assert_eq!(world.get(id).await.error(), "too_many_held");
    }
    assert_eq!(world.get("running").await.status, 200, "what runs is not held");
    gate.open();
    for crowd in crowds {
        assert_eq!(statuses(crowd).await, [200]);
    }
    next.always_looks_up(Step::Truly).wakes([Step::Truly]);
    assert_eq!(world.get("next").await.status, 200, "a refusal is not remembered");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_sandbox_killed_while_many_wait_is_told_to_all_and_remembered() {
    let world = world("").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::gone("killed").after(&gate)]);
    let crowd = world.crowd("abc", 50);
    world.proxy.metric_becomes(HELD, 50.0).await;
    sandbox.killed();
    gate.open();
    assert_eq!(statuses(crowd).await, [502; 50]);
    // Open tabs that try again cost the control plane nothing.
    assert_eq!(statuses(world.crowd("abc", 50)).await, [502; 50]);
    assert_eq!(world.get("abc").await.json()["reason"], "killed");
    assert_eq!(world.node.requests(), 0);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn two_proxies_make_two_wakes_at_most() {
    let world = world("").await;
    let other = Proxy::start(&world.control.config(&nodes_at(world.node.address.port())));
    let gate = Gate::closed();
    let wake = || Step::Truly.after(&gate);
    world.control.sandbox("abc").paused("127.0.0.1").wakes([wake(), wake()]);
    let crowds = [&world.proxy, &other].map(|proxy| support::crowd(proxy.address, "abc", "/", 20));
    for proxy in [&world.proxy, &other] {
        proxy.metric_becomes(HELD, 20.0).await;
    }
    world.control.sandbox("abc").connects_become(2).await;
    gate.open();
    for crowd in crowds {
        assert_eq!(statuses(crowd).await, [200; 20]);
    }
    for proxy in [&world.proxy, &other] {
        proxy.is_idle().await;
    }
}
