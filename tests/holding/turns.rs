//! Whose wake is next when not all can be at once.

use std::sync::{Arc, Mutex};

use crate::{
    HELD, ONE, OTHER, ask, asks, holds, is_being_woken, statuses,
    support::{
        World,
        control_plane::{Gate, Step},
        eventually,
    },
    world,
};

/// The sandboxes whose wakes have reached the control plane, in that order.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// Sandboxes that sleep, and whose wakes are written down and wait for the gate.
    fn asleep(&self, world: &World, name: &str, count: usize, gate: &Gate) -> Vec<String> {
        let ids: Vec<_> = (0..count).map(|n| format!("{name}{n}")).collect();
        for id in &ids {
            let (calls, called) = (self.0.clone(), id.clone());
            let wake = Step::Truly.after(gate).doing(move || calls.lock().expect("no panic").push(called.clone()));
            world.control.sandbox(id).paused("127.0.0.1").wakes([wake]);
        }
        ids
    }

    fn so_far(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    /// How many of them are of sandboxes with this name.
    fn of(&self, name: &str) -> usize {
        self.so_far().iter().filter(|id| id.starts_with(name)).count()
    }

    async fn reach(&self, name: &str, count: usize) {
        eventually(&format!("{count} wakes of {name}"), async || self.of(name) == count).await;
    }
}

#[tokio::test]
async fn hundreds_of_wakes_of_one_client_leave_another_its_turn() {
    let world = world("resume.max_concurrent = 8\n").await;
    let (calls, gate, proxy) = (Calls::default(), Gate::closed(), world.proxy.address);
    let ids = calls.asleep(&world, "one", 500, &gate);
    let crowd = asks(proxy, ONE, &ids);
    world.proxy.metric_becomes(HELD, 500.0).await;
    calls.reach("one", 6).await;
    let open = Gate::closed();
    open.open();
    let others = calls.asleep(&world, "other", 20, &open);
    for id in &others {
        assert_eq!(ask(proxy, OTHER, id).await.status, 200);
    }
    assert_eq!(world.proxy.count(HELD).await, 500, "all of the first client's wait");
    assert_eq!(calls.of("one"), 6);
    gate.open();
    assert_eq!(statuses(crowd).await, [200; 500]);
    assert_eq!((world.node.requests(), world.proxy.count("client_proxy_wakes_total").await), (520, 520));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn random_ids_of_one_client_whose_lookups_hang_leave_another_its_turn() {
    let world = world("resume.max_concurrent = 8\n").await;
    let (gate, proxy) = (Gate::closed(), world.proxy.address);
    let ids: Vec<_> = (0..500).map(|n| format!("r4nd0m{n}")).collect();
    for id in &ids {
        world.control.sandbox(id).looks_up([Step::Truly.after(&gate)]);
    }
    let crowd = asks(proxy, ONE, &ids);
    world.proxy.metric_becomes(HELD, 500.0).await;
    world.control.sandbox("asleep").paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly]);
    assert_eq!(ask(proxy, OTHER, "asleep").await.status, 200);
    assert_eq!(world.proxy.count(HELD).await, 500);
    gate.open();
    assert_eq!(statuses(crowd).await, [502; 500]);
    // What is unknown is not woken.
    assert_eq!(world.proxy.count("client_proxy_wakes_total").await, 1);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_quarter_of_the_turns_is_left_to_others_and_they_get_no_more_than_there_are() {
    let world = world("resume.max_concurrent = 8\n").await;
    let (calls, gate, proxy) = (Calls::default(), Gate::closed(), world.proxy.address);
    let first = asks(proxy, ONE, calls.asleep(&world, "one", 10, &gate));
    world.proxy.metric_becomes(HELD, 10.0).await;
    calls.reach("one", 6).await;
    let ids = calls.asleep(&world, "other", 10, &gate);
    let second = asks(proxy, OTHER, &ids);
    calls.reach("other", 2).await;
    for id in &ids {
        is_being_woken(&world.proxy, id).await;
    }
    assert_eq!((calls.of("one"), calls.of("other")), (6, 2));
    gate.open();
    assert_eq!((statuses(first).await, statuses(second).await), (vec![200; 10], vec![200; 10]));
    assert_eq!(calls.so_far().len(), 20);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_client_that_comes_later_is_next() {
    let world = world("resume.max_concurrent = 1\n").await;
    let (calls, gate, proxy) = (Calls::default(), Gate::closed(), world.proxy.address);
    let many = calls.asleep(&world, "many", 20, &gate);
    let crowd = asks(proxy, ONE, &many);
    for id in &many {
        is_being_woken(&world.proxy, id).await;
    }
    assert_eq!(calls.so_far().len(), 1);
    let single = asks(proxy, OTHER, calls.asleep(&world, "single", 1, &gate));
    is_being_woken(&world.proxy, "single0").await;
    assert_eq!(calls.so_far().len(), 1);
    gate.open();
    assert_eq!((statuses(crowd).await, statuses(single).await), (vec![200; 20], vec![200]));
    let order = calls.so_far();
    // The one under way, perhaps the one whose turn it was, and then this.
    let turn = order.iter().position(|id| id == "single0").expect("woken");
    assert!((1..=2).contains(&turn), "{order:?}");
    assert_eq!(order.len(), 21);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn clients_take_turns_however_many_wakes_each_wants() {
    let world = world("resume.max_concurrent = 1\n").await;
    let (calls, gate, proxy) = (Calls::default(), Gate::closed(), world.proxy.address);
    // One that nobody of them wants is under way, until all have queued.
    let mut crowd = asks(proxy, "10.0.0.1", calls.asleep(&world, "first", 1, &gate));
    calls.reach("first", 1).await;
    let clients = [("a", 30, "10.1.0.1"), ("b", 10, "2001:db8::1"), ("c", 10, "10.1.0.3")];
    for (name, count, client) in clients {
        let ids = calls.asleep(&world, name, count, &gate);
        for id in &ids {
            crowd.spawn(ask(proxy, client, id));
        }
        for id in &ids {
            is_being_woken(&world.proxy, id).await;
        }
    }
    // Of b's network: no turn of its own.
    let ids = calls.asleep(&world, "d", 10, &gate);
    for id in &ids {
        crowd.spawn(ask(proxy, "2001:db8::2", id));
    }
    for id in &ids {
        is_being_woken(&world.proxy, id).await;
    }
    gate.open();
    assert_eq!(statuses(crowd).await, [200; 61]);
    let order = calls.so_far();
    // As long as all have some waiting, none is ahead by more than one that was chosen before the others came.
    for turns in 1..=28 {
        let of = |names: &[char]| order[1..=turns].iter().filter(|id| id.starts_with(names)).count();
        let (a, b, c) = (of(&['a']), of(&['b', 'd']), of(&['c']));
        assert!(a.max(b).max(c) - a.min(b).min(c) <= 2, "{a}, {b} and {c} of {order:?}");
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn waiting_for_a_turn_is_part_of_the_hold_and_a_turn_that_comes_too_late_is_none_lost() {
    let world = world("resume.max_concurrent = 1\nresume.hold_timeout = \"300ms\"\n").await;
    let (calls, gate, proxy) = (Calls::default(), Gate::closed(), world.proxy.address);
    let ids = calls.asleep(&world, "one", 5, &gate);
    let crowd = asks(proxy, ONE, &ids).join_all().await;
    assert!(crowd.iter().all(|answer| answer.error() == "hold_timeout"), "{crowd:?}");
    assert_eq!(calls.so_far().len(), 1);
    world.proxy.is_idle().await;
    gate.open();
    for id in &ids {
        eventually("it is woken after all", async || ask(proxy, ONE, id).await.status == 200).await;
        assert_eq!(world.control.sandbox(id).connects(), 1, "{id}");
    }
    holds(&world.proxy, "one0", 0).await;
    world.proxy.is_idle().await;
}
