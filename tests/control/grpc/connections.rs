//! The connection: when it breaks, when nobody is there, when nobody answers.

use std::time::Duration;

use client_proxy::sandbox::ports::Resumer as _;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout},
};
use tonic::Code;

use super::{LONG, anybody, fault, node, resume, resumer, runs, settings, try_resumer};
use crate::support::{
    control_plane::Gate,
    eventually, free_port,
    grpc_api::{GrpcApi, Step},
    own_ip,
    wire::BlackHole,
};

#[tokio::test]
async fn nothing_is_connected_before_it_is_needed_and_one_connection_is_enough() {
    let api = GrpcApi::start().await;
    let resumer = std::sync::Arc::new(resumer(api.address));
    api.always("abc", runs());
    assert_eq!(api.connections(), 0);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let resumer = resumer.clone();
        calls.spawn(async move { node(&resume(&resumer, &anybody()).await).map(str::to_owned) });
    }
    assert!(calls.join_all().await.iter().all(|node| node.as_deref() == Some("10.0.0.5")));
    assert_eq!((api.calls_for("abc"), api.connections()), (50, 1));
}

#[tokio::test]
async fn the_first_call_after_a_restart_of_the_api_works() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    for _ in 0..3 {
        api.resumes("abc", [runs()]);
        node(&resume(&resumer, &anybody()).await);
        api.stop().await;
        api.restart().await;
    }
    assert_eq!(api.connections(), 3);
}

#[tokio::test]
async fn a_call_cut_in_its_midst_is_made_once_more() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    api.resumes("abc", [Step::Cuts, runs()]);
    node(&resume(&resumer, &anybody()).await);
    // An API that always breaks is not asked in circles.
    api.resumes("abc", [Step::Cuts, Step::Cuts]);
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("broke before an answer"), "{text}");
    api.resumes("abc", [runs()]);
    node(&resume(&resumer, &anybody()).await);
}

#[tokio::test]
async fn an_api_that_says_it_is_unavailable_is_asked_once_more() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    api.resumes("abc", [Step::fails(Code::Unavailable, "restarting"), runs()]);
    node(&resume(&resumer, &anybody()).await);
    api.resumes("abc", [Step::fails(Code::Unavailable, ""), Step::fails(Code::NotFound, "")]);
    let error = resume(&resumer, &anybody()).await.expect_err("the last word counts");
    assert_eq!(format!("{error:?}"), "Gone(Unknown)");
    // A cut and a refusal are the same kind of failure: two calls in all.
    api.resumes("abc", [Step::Cuts, Step::fails(Code::Unavailable, "")]);
    fault(resume(&resumer, &anybody()).await);
}

#[tokio::test]
async fn an_api_that_is_stopped_mid_call_is_a_fault_and_then_back() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    api.resumes("abc", [Step::Hangs]);
    let text = tokio::join!(async { fault(resume(&resumer, &anybody()).await) }, async {
        api.calls_become("abc", 1).await;
        api.stop().await;
    })
    .0;
    assert!(text.contains("no connection") && text.contains("refused"), "{text}");
    api.restart().await;
    api.always("abc", runs());
    // What failed just before is remembered for a tenth of a second.
    eventually("it is found again", async || resumer.resume(&anybody()).await.is_ok()).await;
}

#[tokio::test]
async fn nobody_listens() {
    let ip = own_ip();
    let resumer = try_resumer(&settings(format!("{ip}:{}", free_port(&ip))), LONG).expect("a resumer");
    let start = Instant::now();
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("no connection") && text.contains("refused"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_host_without_an_address_is_a_fault() {
    let resumer = try_resumer(&settings("nowhere.invalid:5009"), LONG).expect("a resumer");
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("no connection"), "{text}");
}

#[tokio::test]
async fn whoever_waits_for_a_connection_learns_with_the_others_that_there_is_none() {
    let hole = BlackHole::dig();
    let resumer = std::sync::Arc::new(resumer(hole.address));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let resumer = resumer.clone();
        calls.spawn(async move { fault(resumer.resume(&anybody()).await) });
    }
    for text in calls.join_all().await {
        assert!(text.contains("no connection") && text.contains("elapsed"), "{text}");
    }
    // Two seconds for each try of each call, one after the other, were 80 s.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_hanging_api_is_left_when_the_time_of_a_call_is_over() {
    let api = GrpcApi::start().await;
    let limit = Duration::from_millis(300);
    let resumer = try_resumer(&settings(api.address), limit).expect("a resumer");
    api.resumes("abc", [Step::Hangs]);
    let start = Instant::now();
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("resume.call_timeout"), "{text}");
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    // Such a call was not cut: there is no second.
    assert_eq!(api.calls_for("abc"), 1);
    // Nor is the connection at fault.
    api.resumes("abc", [runs()]);
    node(&resume(&resumer, &anybody()).await);
    assert_eq!(api.connections(), 1);
}

#[tokio::test]
async fn dropping_a_call_cancels_it_and_no_other() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    let gate = Gate::closed();
    api.always("abc", Step::Hangs).resumes("b", [runs().after(&gate)]);
    let other = async {
        let mut wake = anybody();
        wake.id = client_proxy::types::SandboxId::new("b").expect("an id");
        node(&resume(&resumer, &wake).await).map(str::to_owned)
    };
    let leaver = async {
        let wake = anybody();
        tokio::select! {
            _ = resumer.resume(&wake) => panic!("it hangs"),
            () = api.calls_become("abc", 1) => {}
        }
        api.callers_left(1).await;
        api.calls_become("b", 1).await;
        gate.open();
    };
    assert_eq!(tokio::join!(other, leaver).0.as_deref(), Some("10.0.0.5"));
    assert_eq!(api.connections(), 1);
}

#[tokio::test]
async fn a_mute_peer_is_left_after_a_ping_without_an_answer() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = peer.local_addr().expect("an address");
    let resumer = try_resumer(&settings(address), Duration::from_mins(2)).expect("a resumer");
    let call = tokio::spawn(async move { fault(resumer.resume(&anybody()).await) });
    let first = peer.accept().await.expect("a connection");
    // From here on nothing but time passes.
    tokio::time::pause();
    let start = Instant::now();
    let second = timeout(Duration::from_mins(1), peer.accept()).await.expect("it is left").expect("a connection");
    let took = start.elapsed();
    assert!((Duration::from_secs(30)..Duration::from_secs(45)).contains(&took), "{took:?}");
    let text = call.await.expect("no panic");
    assert!(text.contains("pings"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
    drop((first, second));
}

#[test]
fn a_call_may_be_waited_for_on_another_runtime_and_outlives_none() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let (control, worker) = (runtime(), runtime());
    let api = worker.block_on(GrpcApi::start());
    client_proxy::control::install_tls_provider();
    // Outside of any runtime.
    let resumer = client_proxy::control::GrpcResumer::new(&settings(api.address), LONG, control.handle());
    let resumer = resumer.expect("a resumer");
    let ask = || worker.block_on(resume(&resumer, &anybody()));
    api.resumes("abc", [runs(), runs()]);
    node(&ask());
    node(&ask());
    assert_eq!(api.connections(), 1);
    control.shutdown_timeout(Duration::from_secs(5));
    assert!(fault(ask()).contains("lost"));
}
