//! A wake that everybody has left.

use serde_json::json;

use crate::{
    BALANCERS, ONE, OTHER, ask, begin,
    support::{
        REMEMBER, Server, answer,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        eventually, nodes_at, view_becomes,
    },
};

#[tokio::test]
async fn a_wake_that_was_asked_for_and_that_all_have_left_ended_as_the_control_plane_said_last() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let lines = format!("wake.max_per_client_per_minute = 1\n{BALANCERS}{REMEMBER}{}", nodes_at(node.address.port()));
    let proxy = Binary::start(&control.config(&lines)).await;
    let (sandbox, gate) = (control.sandbox("abc"), Gate::closed());
    sandbox.paused("127.0.0.1").wakes([Step::conflict().after(&gate)]);
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(begin(proxy.address, ONE, "abc").await);
    }
    sandbox.connects_become(1).await;
    view_becomes(proxy.admin, "abc", |view| view["held"] == 3).await;
    drop(crowd);
    view_becomes(proxy.admin, "abc", |view| view["held"] == 0).await;
    gate.open();
    // Nobody is there to be asked for again.
    view_becomes(proxy.admin, "abc", |view| {
        view["state"] == "asleep" && view["lastWake"]["outcome"] == "transitioning"
    })
    .await;
    assert_eq!(sandbox.connects(), 1);
    let told = || proxy.log().into_iter().find(|line| line["target"] == "wake");
    eventually("the one line per wake", async || told().is_some()).await;
    let told = told().expect("just seen");
    let want = json!({ "outcome": "transitioning", "sandbox": "abc", "client": ONE });
    for name in ["outcome", "sandbox", "client"] {
        assert_eq!(told[name], want[name], "{told}");
    }
    // It was a wake of this client's, and of no other.
    control.sandbox("next").paused("127.0.0.1");
    assert_eq!(ask(proxy.address, ONE, "next").await.error(), "too_many_wakes");
    sandbox.wakes([Step::Truly]);
    assert_eq!(ask(proxy.address, OTHER, "abc").await.status, 200);
}
