//! How many requests one client may have waiting.

use crate::{
    BALANCERS, HELD, ONE, OTHER, ask, asks, begin, holds, is_too_many, statuses,
    support::{
        REMEMBER, Server, answer,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, eventually,
        http2::{Http2, full, request},
        nodes_at,
    },
    world,
};

#[tokio::test]
async fn beyond_a_client_s_bound_the_next_is_refused_without_a_call() {
    let world = world("resume.max_held_per_client = 3\n").await;
    let (gate, proxy) = (Gate::closed(), world.proxy.address);
    for id in ["a", "b", "another"] {
        world.control.sandbox(id).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    }
    world.control.sandbox("running").running("127.0.0.1");
    assert_eq!(ask(proxy, ONE, "running").await.status, 200);
    let crowd = asks(proxy, ONE, ["a", "a", "b"]);
    holds(&world.proxy, "a", 2).await;
    holds(&world.proxy, "b", 1).await;
    let next = world.control.sandbox("next");
    next.paused("127.0.0.1").looks_up([]).wakes([]);
    for id in ["next", "a", "b", "next"] {
        is_too_many(&ask(proxy, ONE, id).await);
    }
    assert_eq!(ask(proxy, ONE, "running").await.status, 200, "what runs is not held");
    let others = asks(proxy, OTHER, ["a", "another", "another"]);
    holds(&world.proxy, "a", 3).await;
    holds(&world.proxy, "another", 2).await;
    is_too_many(&ask(proxy, OTHER, "next").await);
    assert_eq!(world.node.requests(), 2, "those held are still held");
    gate.open();
    assert_eq!((statuses(crowd).await, statuses(others).await), (vec![200; 3], vec![200; 3]));
    world.proxy.metric_becomes(HELD, 0.0).await;
    next.always_looks_up(Step::Truly).wakes([Step::Truly]);
    assert_eq!(ask(proxy, ONE, "next").await.status, 200, "a refusal is not remembered");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn without_a_bound_one_client_may_have_all_places() {
    let world = world("resume.max_held_per_client = 0\nresume.max_held = 100\n").await;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let crowd = asks(world.proxy.address, ONE, ["abc"; 100]);
    holds(&world.proxy, "abc", 100).await;
    is_too_many(&ask(world.proxy.address, OTHER, "abc").await);
    gate.open();
    assert_eq!(statuses(crowd).await, [200; 100]);
}

#[tokio::test]
async fn addresses_of_one_ipv6_network_are_one_client_and_no_others_are() {
    let world = world("resume.max_held_per_client = 2\n").await;
    let (gate, proxy) = (Gate::closed(), world.proxy.address);
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut held = Vec::new();
    for (clients, next) in [
        (["2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"], "2001:db8:0:1:1::"),
        (["2001:db8:0:2::1", "2001:db8:0:2::1"], "2001:db8:0:2:8000::1"),
        (["2001:db8::1", "2001:DB8:0:0:1::"], "2001:db8:0:0:2::"),
        // IPv4 in whatever form is as it is.
        (["::ffff:10.1.2.3", "10.1.2.3"], "::ffff:10.1.2.3"),
        (["::ffff:10.1.2.4", "10.1.2.4"], "10.1.2.4"),
    ] {
        for client in clients {
            held.push(begin(proxy, client, "abc").await);
            holds(&world.proxy, "abc", held.len()).await;
        }
        is_too_many(&ask(proxy, next, "abc").await);
    }
    gate.open();
    for mut client in held {
        assert_eq!(client.message().await.text(), "hello");
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn whoever_leaves_or_is_answered_frees_the_client_s_place() {
    let world = world("resume.max_held_per_client = 1\n").await;
    let proxy = world.proxy.address;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    for with_reset in [false, true] {
        let held = begin(proxy, ONE, "abc").await;
        holds(&world.proxy, "abc", 1).await;
        is_too_many(&ask(proxy, ONE, "abc").await);
        held.end(with_reset);
        holds(&world.proxy, "abc", 0).await;
    }
    // A stream of a connection that stays.
    let client = Http2::connect(proxy).await;
    for _ in 0..3 {
        let mut asked = request("GET", "abc", "/", full(""));
        asked.headers_mut().insert("x-forwarded-for", ONE.parse().expect("a value"));
        let stream = tokio::spawn(client.sender.clone().send_request(asked));
        holds(&world.proxy, "abc", 1).await;
        is_too_many(&ask(proxy, ONE, "abc").await);
        stream.abort();
        holds(&world.proxy, "abc", 0).await;
    }
    drop(client);
    // One that is answered.
    let mut patient = begin(proxy, OTHER, "abc").await;
    holds(&world.proxy, "abc", 1).await;
    gate.open();
    assert_eq!(patient.message().await.text(), "hello");
    drop(patient);
    // Answers of every kind: the place is free before the client can have read one.
    world.control.sandbox("gone").paused("127.0.0.1").always_wakes(Step::gone("killed"));
    world.control.sandbox("down").paused("127.0.0.1").always_wakes(Step::error(500, "down"));
    for (id, status) in [("gone", 502), ("down", 503), ("abc", 200), ("unknown", 502)].repeat(5) {
        assert_eq!(ask(proxy, ONE, id).await.status, status, "{id}");
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_client_whose_time_is_up_has_its_place_again() {
    let world = world("resume.max_held_per_client = 2\nresume.hold_timeout = \"100ms\"\n").await;
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    for _ in 0..3 {
        let pair = asks(world.proxy.address, ONE, ["abc"; 2]);
        assert_eq!(statuses(pair).await, [504; 2]);
    }
    gate.open();
    eventually("the wake goes on", async || ask(world.proxy.address, ONE, "abc").await.status == 200).await;
}

#[tokio::test]
async fn the_bound_changes_at_sighup_and_whoever_waits_stays() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = |bound: usize| {
        let bound = format!("resume.max_held_per_client = {bound}");
        control.config(&format!("{BALANCERS}{REMEMBER}{}{bound}", nodes_at(node.address.port())))
    };
    let proxy = Binary::start(&config(1)).await;
    let held_become = async |held: usize| {
        eventually(&format!("{held} held"), async || count(proxy.health, HELD).await == held).await;
    };
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut held = vec![begin(proxy.address, ONE, "abc").await];
    control.sandbox("abc").connects_become(1).await;
    for (bound, more) in [(2, 1), (0, 3), (4, 0)] {
        is_too_many(&ask(proxy.address, ONE, "abc").await);
        let told = proxy.reload(&config(bound)).await;
        assert_eq!(told["changed"], "resume.max_held_per_client", "{told}");
        for _ in 0..more {
            held.push(begin(proxy.address, ONE, "abc").await);
            held_become(held.len()).await;
        }
        if bound == 0 {
            proxy.reload(&config(3)).await;
        }
    }
    is_too_many(&ask(proxy.address, ONE, "abc").await);
    gate.open();
    for mut client in held {
        assert_eq!(client.message().await.text(), "hello");
    }
    held_become(0).await;
}
