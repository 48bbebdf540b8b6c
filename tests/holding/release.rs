//! After a wake: who is let through when.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};

use crate::{
    HELD, ONE, OTHER, ask, asks, begin, holds, is_being_woken, statuses,
    support::{
        World,
        control_plane::{Gate, Step},
        eventually,
    },
    world,
};

const RATE: usize = 20;
const CROWD: usize = 40;

/// How long it takes until crowds that wait for these sandboxes have all been let through.
async fn let_through(world: &World, ids: &[&str]) -> Duration {
    let (gate, before) = (Gate::closed(), world.node.requests());
    let mut all = JoinSet::new();
    for id in ids {
        world.control.sandbox(id).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
        // The others come when it is being woken: whoever waited for the lookup, and is slow to learn of its end,
        // may find the sandbox awake.
        all.spawn(ask(world.proxy.address, ONE, id));
        is_being_woken(&world.proxy, id).await;
        for _ in 1..CROWD {
            all.spawn(ask(world.proxy.address, ONE, id));
        }
    }
    for id in ids {
        holds(&world.proxy, id, CROWD).await;
    }
    let start = Instant::now();
    gate.open();
    assert!(statuses(all).await.iter().all(|status| *status == 200));
    assert_eq!(world.node.requests() - before, ids.len() * CROWD);
    start.elapsed()
}

#[tokio::test]
async fn at_a_rate_a_crowd_is_let_through_by_and_by_and_each_sandbox_for_itself() {
    let world = world(&format!("resume.release_rate = {RATE}\n")).await;
    let alone = let_through(&world, &["alone"]).await;
    // A second's worth may pass at once. On a busy machine it takes longer, never less.
    let least = Duration::from_secs((CROWD / RATE - 1) as u64).mul_f32(0.95);
    assert!(alone >= least, "all let through after {alone:?}");
    // One after the other they would take twice as long.
    let both = let_through(&world, &["a", "b"]).await;
    assert!(both < alone * 3 / 2, "{both:?} instead of {alone:?}");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn whoever_waits_to_be_let_through_is_held_and_may_leave() {
    let world = world("resume.release_rate = 1\nresume.max_held_per_client = 5\n").await;
    let (gate, proxy) = (Gate::closed(), world.proxy.address);
    world.control.sandbox("abc").paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("other").paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly]);
    let mut crowd = Vec::new();
    for _ in 0..5 {
        crowd.push(begin(proxy, ONE, "abc").await);
    }
    holds(&world.proxy, "abc", 5).await;
    gate.open();
    eventually("the first is let through", async || world.node.requests() > 0).await;
    // Nobody else waits for them.
    assert_eq!(ask(proxy, OTHER, "other").await.status, 200);
    assert!(world.proxy.count(HELD).await > 0, "the others are held still");
    drop(crowd);
    world.proxy.metric_becomes(HELD, 0.0).await;
    assert!(world.node.requests() < 6, "who left was not let through");
    // And no turn is kept for them.
    assert_eq!(ask(proxy, OTHER, "abc").await.status, 200);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn without_a_rate_all_are_let_through_at_once() {
    let world = world("resume.release_rate = 0\n").await;
    let (gate, proxy) = (Gate::closed(), world.proxy.address);
    world.control.sandbox("abc").paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let crowd = asks(proxy, ONE, ["abc"; 200]);
    holds(&world.proxy, "abc", 200).await;
    gate.open();
    assert_eq!(statuses(crowd).await, [200; 200]);
    assert_eq!(world.node.requests(), 200);
}
