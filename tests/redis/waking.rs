//! E2B's way to sleep and wake: the API deletes the record, pauses, and wakes when the proxy asks for it.

use std::{sync::Arc, time::Duration};

use tonic::Code;

use super::{
    Nodes, becomes,
    grpc_api::{GrpcApi, Say, TRANSITIONING},
    pushes,
    server::Redis,
    support::{Proxy, control_plane::Gate, crowd, eventually, request, send},
    told, who,
};

async fn world(api: &GrpcApi, more: &str) -> (Arc<Redis>, Nodes, Proxy) {
    let (redis, nodes) = (Arc::new(Redis::start().await), Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, &(api.config() + more)));
    pushes(&proxy, true).await;
    (redis, nodes, proxy)
}

/// Wakes the sandbox onto 127.0.0.2, as E2B does: the record first, the answer then.
fn wakes(redis: &Arc<Redis>, sandbox: &'static str) -> Say {
    let redis = redis.clone();
    Say::Node("127.0.0.2").doing(move || {
        let redis = redis.clone();
        async move { redis.put(sandbox, "127.0.0.2", "woken").await }
    })
}

#[tokio::test]
async fn a_request_that_comes_while_the_sandbox_is_being_paused_is_held_and_answered_once() {
    let api = GrpcApi::start([]);
    let (redis, _nodes, proxy) = world(&api, "").await;
    redis.put("abc", "127.0.0.1", "a").await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    // The record goes first; the pause takes a while.
    redis.delete("abc").await;
    api.says([TRANSITIONING, TRANSITIONING, TRANSITIONING, wakes(&redis, "abc")]);
    let answer = proxy.get(8000, "abc", "/").await;
    assert_eq!(answer.text(), "127.0.0.2");
    assert!(answer.header("server-timing").contains("resume;dur="), "{:?}", answer.headers);
    assert_eq!(api.calls().len(), 4);
    // What it wrote meanwhile is known, too.
    assert_eq!(who(&proxy, "abc").await, "127.0.0.2");
}

#[tokio::test]
async fn two_proxies_with_a_crowd_each_wake_it_at_most_once_each() {
    let gate = Gate::closed();
    let api = GrpcApi::start([]);
    let (redis, nodes, one) = world(&api, "").await;
    let other = Proxy::start(&redis.config(nodes.port, &api.config()));
    pushes(&other, true).await;
    let wake = |gate: &Gate| {
        let (gate, redis) = (gate.clone(), redis.clone());
        Say::Node("127.0.0.2").doing(move || {
            let (gate, redis) = (gate.clone(), redis.clone());
            async move {
                gate.opened().await;
                redis.put("abc", "127.0.0.2", "woken").await;
            }
        })
    };
    api.says([wake(&gate), wake(&gate)]);
    let mut crowds = [crowd(one.address, "abc", "/", 300), crowd(other.address, "abc", "/", 300)];
    for proxy in [&one, &other] {
        proxy.metric_becomes("client_proxy_held_requests", 300.0).await;
    }
    gate.open();
    for crowd in &mut crowds {
        while let Some(answer) = crowd.join_next().await {
            assert_eq!(told(&answer.expect("no panic")), "127.0.0.2");
        }
    }
    assert_eq!(api.calls().len(), 2);
}

#[tokio::test]
async fn every_answer_of_the_api_is_told_as_it_is_meant() {
    let api = GrpcApi::start([]);
    let (_redis, _nodes, proxy) = world(&api, "resume.hold_timeout = \"1s\"\nresume.call_timeout = \"700ms\"").await;
    let filesystem = "sandbox snapshot has no memory";
    for (at, (say, want)) in [
        (Say::Status(Code::NotFound, "no snapshot"), "502 sandbox_not_found"),
        (Say::Status(Code::PermissionDenied, "wrong"), "403 access_denied"),
        (Say::Status(Code::FailedPrecondition, filesystem), "502 sandbox_not_found"),
        (Say::Status(Code::ResourceExhausted, "at most 20 sandboxes"), "429 team_limit"),
        (Say::Status(Code::Unavailable, "later"), "503 control_plane_unavailable"),
        (Say::Status(Code::Internal, "broken"), "503 control_plane_unavailable"),
        (Say::Status(Code::Unauthenticated, "who?"), "503 control_plane_unavailable"),
        (Say::Node(""), "503 node_unavailable"),
        (Say::Node("no host"), "503 control_plane_unavailable"),
        (Say::Node(" 127.0.0.3 "), "127.0.0.3"),
        (Say::Hang, "503 control_plane_unavailable"),
    ]
    .into_iter()
    .enumerate()
    {
        // Without a node it is looked for again; a server that is just not there for it is asked again.
        let twice = matches!(say, Say::Node("") | Say::Status(Code::Unavailable, _));
        api.says([say.clone()]);
        if twice {
            api.says([say]);
        }
        let sandbox = format!("s{at}");
        assert_eq!(who(&proxy, &sandbox).await, want, "{at}");
    }
    let call = &api.calls()[0];
    assert_eq!((call.sandbox.as_str(), call.port.as_str()), ("s0", "8000"));
    let refused = proxy.get(8000, "s3", "/").await;
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("at most 20 sandboxes"), "{}", refused.text());
}

#[tokio::test]
async fn transitioning_for_ever_is_told_at_the_end_of_the_hold_time() {
    let api = GrpcApi::always(TRANSITIONING);
    let (_redis, _nodes, proxy) = world(&api, "resume.hold_timeout = \"700ms\"").await;
    let refused = proxy.get(8000, "abc", "/").await;
    assert_eq!(told(&refused), "409 still_transitioning");
    assert!(!refused.header("retry-after").is_empty());
}

#[tokio::test]
async fn tokens_are_handed_on_and_a_wrong_one_neither_spoils_nor_rides_on_a_right_one() {
    let gate = Gate::closed();
    let held = gate.clone();
    let api = GrpcApi::start([
        Say::Status(Code::PermissionDenied, "wrong token"),
        Say::Node("127.0.0.2").doing(move || {
            let gate = held.clone();
            async move { gate.opened().await }
        }),
    ]);
    let (_redis, _nodes, proxy) = world(&api, "").await;
    let ask = |token: &str| {
        let request = request("GET", 8000, "abc", "/").header("e2b-traffic-access-token", token);
        send(proxy.address, request.body(http_body_util::Full::default()).expect("a request"))
    };
    assert_eq!(told(&ask("wr0ng").await), "403 access_denied");
    let right = tokio::spawn(ask("r1ght"));
    api.calls_become(2).await;
    assert_eq!(told(&ask("wr0ng").await), "403 access_denied", "remembered, not asked again");
    gate.open();
    assert_eq!(told(&right.await.expect("no panic")), "127.0.0.2");
    let tokens: Vec<_> = api.calls().iter().map(|call| call.traffic_token.clone()).collect();
    assert_eq!(tokens, [Some("wr0ng".to_owned()), Some("r1ght".to_owned())]);
}

#[tokio::test]
async fn a_sandbox_paused_again_right_after_its_wake_is_woken_once_more_and_no_more() {
    let api = GrpcApi::start([]);
    let (redis, _nodes, proxy) = world(&api, "").await;
    // Its record comes and goes while the wake is on its way.
    let briefly = || {
        let redis = redis.clone();
        Say::Node("127.0.0.1").doing(move || {
            let redis = redis.clone();
            async move {
                redis.put("abc", "127.0.0.1", "brief").await;
                redis.delete("abc").await;
            }
        })
    };
    api.says([briefly(), wakes(&redis, "abc")]);
    let answer = who(&proxy, "abc").await;
    assert!(["127.0.0.1", "127.0.0.2"].contains(&answer.as_str()), "{answer}");
    becomes(&proxy, "abc", "127.0.0.2").await;
    assert_eq!(api.calls().len(), 2);
}

#[tokio::test]
async fn an_api_that_is_down_wakes_nobody_takes_no_route_and_is_back_at_once() {
    let api = GrpcApi::start([]);
    let (redis, _nodes, proxy) = world(&api, "").await;
    redis.put("known", "127.0.0.1", "a").await;
    assert_eq!(who(&proxy, "known").await, "127.0.0.1");
    api.says([Say::Node("127.0.0.3")]);
    assert_eq!(who(&proxy, "first").await, "127.0.0.3");
    api.stop().await;
    assert_eq!(who(&proxy, "abc").await, "503 control_plane_unavailable");
    assert_eq!(who(&proxy, "known").await, "127.0.0.1");
    api.restart();
    api.says([wakes(&redis, "def")]);
    becomes(&proxy, "def", "127.0.0.2").await;
}

#[tokio::test]
async fn a_redis_outage_wakes_nobody() {
    let api = GrpcApi::start([]);
    let (redis, _nodes, proxy) = world(&api, "").await;
    redis.kill();
    pushes(&proxy, false).await;
    for n in 0..5 {
        assert_eq!(who(&proxy, &format!("s{n}")).await, "503 control_plane_unavailable");
    }
    assert!(api.calls().is_empty());
}

#[tokio::test]
async fn a_late_delete_of_a_former_run_unroutes_nothing() {
    let api = GrpcApi::always(Say::Node("127.0.0.2"));
    let (redis, _nodes, proxy) = world(&api, "").await;
    redis.put("abc", "127.0.0.2", "new").await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.2");
    // E2B's own guard: only the run that is named is deleted.
    let script = "if cjson.decode(redis.call('GET', KEYS[1]))['execution_id'] == ARGV[1] then \
                  return redis.call('DEL', KEYS[1]) end return 0";
    redis.command::<i64>("EVAL", &[script, "1", &super::server::key("abc"), "old"]).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.2");
    // And where there is no such guard, the API says that it runs, and where.
    redis.delete("abc").await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.2");
}

#[tokio::test]
async fn a_wake_that_outlives_its_requests_serves_the_next_one() {
    let gate = Gate::closed();
    let held = gate.clone();
    let api = GrpcApi::start([Say::Node("127.0.0.3").doing(move || {
        let gate = held.clone();
        async move { gate.opened().await }
    })]);
    let (_redis, _nodes, proxy) = world(&api, "resume.hold_timeout = \"300ms\"").await;
    assert_eq!(who(&proxy, "abc").await, "504 hold_timeout");
    gate.open();
    eventually("it is there", async || who(&proxy, "abc").await == "127.0.0.3").await;
    assert_eq!(api.calls().len(), 1);
    tokio::time::timeout(Duration::from_secs(5), proxy.is_idle()).await.expect("nobody is held");
}

#[tokio::test]
async fn the_first_of_many_may_leave_and_a_sandbox_that_is_killed_meanwhile_is_told_to_all_at_once() {
    let gate = Gate::closed();
    let held = gate.clone();
    let api = GrpcApi::start([Say::Status(Code::NotFound, "killed").doing(move || {
        let gate = held.clone();
        async move { gate.opened().await }
    })]);
    let (_redis, _nodes, proxy) = world(&api, "").await;
    let mut first = crowd(proxy.address, "abc", "/", 1);
    api.calls_become(1).await;
    let mut others = crowd(proxy.address, "abc", "/", 50);
    proxy.metric_becomes("client_proxy_held_requests", 51.0).await;
    first.abort_all();
    while first.join_next().await.is_some() {}
    proxy.metric_becomes("client_proxy_held_requests", 50.0).await;
    gate.open();
    while let Some(answer) = others.join_next().await {
        assert_eq!(told(&answer.expect("no panic")), "502 sandbox_not_found");
    }
    // Tabs that try again do not call the API each time.
    for _ in 0..10 {
        assert_eq!(who(&proxy, "abc").await, "502 sandbox_not_found");
    }
    assert_eq!(api.calls().len(), 1);
}

#[tokio::test]
async fn unknown_ids_cost_at_most_one_call_each_while_they_are_remembered() {
    let api = GrpcApi::always(Say::Status(Code::NotFound, ""));
    let (redis, _nodes, proxy) = world(&api, "cache.negative_ttl = \"1h\"").await;
    for _ in 0..5 {
        for n in 0..20 {
            assert_eq!(who(&proxy, &format!("s{n}")).await, "502 sandbox_not_found");
        }
    }
    assert!(api.calls().len() <= 25, "{}", api.calls().len());
    // And what is remembered is forgotten at once when it changes.
    redis.put("s7", "127.0.0.1", "a").await;
    becomes(&proxy, "s7", "127.0.0.1").await;
}
