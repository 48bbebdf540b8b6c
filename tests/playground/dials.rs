//! What the playground's proxy asks before it dials: whose a listener is.

use client_proxy::types::SandboxId;
use futures_util::future::join_all;

use crate::playground_support::{Ground, Sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_dials_is_judged_by_a_few_readings_and_a_new_listener_by_a_new_one() {
    let ground = Ground::start(&[]).await;
    let (crowded, other) = (ground.api.sleeper("counter").await, ground.api.sleeper("counter").await);
    let guard = ground.playground.listener_guard();
    let id = |sandbox: &Sandbox| SandboxId::new(&sandbox.id).expect("an id");
    let (crowded_id, other_id) = (id(&crowded), id(&other));
    let crowd = join_all((0..300).map(|_| guard.may_dial(&crowded_id, (crowded.ip, 8000).into())));
    let (crowd, alone) = tokio::join!(crowd, guard.may_dial(&other_id, (other.ip, 8000).into()));
    assert!(alone && crowd.into_iter().all(|may| may));
    let (listeners, holders) = guard.readings();
    assert!(listeners <= 5 && holders <= 10, "{listeners} of the listeners, {holders} of who has them");
    // What was read before does not count: who listens may have come since.
    for _ in 0..20 {
        let strange = std::net::TcpListener::bind((crowded.ip, 0)).expect("a free port");
        let address = strange.local_addr().expect("an address");
        assert!(!guard.may_dial(&crowded_id, address).await);
        drop(strange);
        assert!(guard.may_dial(&crowded_id, address).await, "nobody is in the way");
    }
    ground.playground.shutdown().await;
}
