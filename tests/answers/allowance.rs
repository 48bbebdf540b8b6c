//! So many wakes a minute for each client, exactly.

use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    asking::{get, outcome},
    support::{
        World,
        control_plane::{Gate, Step},
        http2::Http2,
        request, send,
    },
};

const THREE: &str = "wake.max_per_client_per_minute = 3\n";

#[tokio::test]
async fn of_ten_at_once_three_wake_and_seven_are_told_to_come_later() {
    let world = World::new(THREE).await;
    let gate = Gate::closed();
    for at in 0..10 {
        world.control.sandbox(&format!("s{at}")).paused("127.0.0.1").always_wakes(Step::Truly.after(&gate));
    }
    let client = Http2::connect(world.proxy.address).await;
    let mut asked = JoinSet::new();
    for at in 0..10 {
        // On connections of both workers.
        let (address, client, id) = (world.proxy.address, client.clone(), format!("s{at}"));
        asked.spawn(async move {
            if at % 2 == 0 {
                let request = request("GET", 8000, &id, "/").body(crate::asking::bytes("")).expect("a request");
                return send(address, request).await;
            }
            client.get(&id, "/").await
        });
    }
    let mut refused = 0;
    while refused < 7 {
        let answer = asked.join_next().await.expect("another").expect("no panic");
        assert_eq!((outcome(&answer), answer.error()), ((429, "too_many_wakes"), "too_many_wakes".into()));
        let after: u64 = answer.header("retry-after").parse().expect("seconds");
        assert!((50..=90).contains(&after), "{after}: the oldest of three is a minute old then");
        refused += 1;
    }
    world.proxy.metric_becomes("client_proxy_held_requests", 3.0).await;
    gate.open();
    drop(client);
    for answer in asked.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    }
    let connects: usize = (0..10).map(|at| world.control.sandbox(&format!("s{at}")).connects()).sum();
    assert_eq!((connects, world.proxy.count("client_proxy_wakes_total").await), (3, 3));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn wakes_that_fail_count_and_what_runs_or_is_being_woken_does_not() {
    let world = World::new(&format!("{THREE}cache.negative_ttl = \"1ms\"\n")).await;
    let gate = Gate::closed();
    world.control.sandbox("runs").running("127.0.0.1");
    world.control.sandbox("slow").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("full").paused("127.0.0.1").always_wakes(Step::error(429, "limit"));
    world.control.sandbox("next").paused("127.0.0.1").set("/lifecycle", json!({ "autoResume": true }));
    assert_eq!(outcome(&get(&world.proxy, "slow", &[("x-sandbox-wake", "async")]).await), (503, "waking"));
    for _ in 0..2 {
        assert_eq!(outcome(&get(&world.proxy, "full", &[]).await), (429, "team_limit"));
    }
    assert_eq!(outcome(&get(&world.proxy, "next", &[]).await), (429, "too_many_wakes"));
    // Never: that is no wake, and is not told that there were too many.
    let never = get(&world.proxy, "next", &[("x-sandbox-wake", "never")]).await;
    assert_eq!(outcome(&never), (502, "sandbox_not_found; reason=not_woken"));
    let joined = async {
        let (answer, ()) = tokio::join!(get(&world.proxy, "slow", &[]), async {
            world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
            gate.open();
        });
        answer
    };
    assert_eq!(joined.await.status, 200);
    for _ in 0..5 {
        assert_eq!(get(&world.proxy, "runs", &[]).await.status, 200);
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn behind_a_load_balancer_each_client_has_its_own() {
    let config = "wake.max_per_client_per_minute = 1\nserver.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let world = World::new(config).await;
    for (at, (client, code)) in [
        ("192.0.2.1", ""),
        ("192.0.2.2", ""),
        ("192.0.2.1", "too_many_wakes"),
        ("2001:db8::1", ""),
        // An IPv6 client has its whole /64.
        ("2001:db8::ffff", "too_many_wakes"),
        ("2001:db8:0:1::1", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{at}");
        world.control.sandbox(&id).paused("127.0.0.1").wakes(code.is_empty().then_some(Step::Truly));
        let answer = get(&world.proxy, &id, &[("x-forwarded-for", client)]).await;
        assert_eq!(outcome(&answer), (if code.is_empty() { 200 } else { 429 }, code), "{client}");
    }
}
