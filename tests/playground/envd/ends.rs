//! Every way in which a program ends, and how it is told.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{bash, of, sandbox};
use crate::playground_support::{state_of, until};

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_as_envd_tells_them() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    for (script, want) in [
        ("exit 3", json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" })),
        (
            "kill -TERM $$",
            json!({ "exitCode": -1, "exited": false, "status": "signal: terminated", "error": "signal: terminated" }),
        ),
        (
            "there-is-no-such-program",
            json!({ "exitCode": 127, "exited": true, "status": "exit status 127", "error": "exit status 127" }),
        ),
    ] {
        assert_eq!(rpc.run(bash(script)).await.end, want, "{script}");
    }
    let ended = rpc.run(json!({ "process": { "cmd": "there-is-no-such-program" } })).await;
    assert_eq!(ended.end["exitCode"], 127);
    assert!(ended.stderr.starts_with("there-is-no-such-program: "), "{}", ended.stderr);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_program_though_its_children_hold_its_output() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    for signal in [json!("SIGNAL_SIGKILL"), json!(9)] {
        let (mut frames, pid) = rpc.start(bash("(sleep 4351; true) & echo here; wait; true")).await;
        assert_eq!(frames.said("stdout").await, "here\n");
        assert_eq!(rpc.done("SendSignal", &of(pid, &json!({ "signal": signal }))).await, json!({}));
        let ended = timeout(Duration::from_secs(10), frames.ended()).await.expect("an end");
        let killed = json!({ "exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed" });
        assert_eq!((ended.end, ended.last), (killed, json!({})));
        assert_eq!(rpc.done("List", &json!({})).await, json!({ "processes": [] }));
        let (status, body) = rpc.unary("SendSignal", &of(pid, &json!({ "signal": 9 }))).await;
        assert_eq!((status, &body["code"]), (404, &json!("not_found")));
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_leaves_behind_may_still_speak_for_it() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let ended = rpc.run(bash("(sleep 0.5; echo late) & echo early")).await;
    assert_eq!((&*ended.stdout, ended.end["exitCode"].as_i64()), ("early\nlate\n", Some(0)));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_deadline_stream_and_program_end() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (mut frames, pid) = rpc.with("connect-timeout-ms", "700").start(bash("exec sleep 4352")).await;
    let pid = i32::try_from(pid).expect("a number");
    assert!(state_of(pid).is_some());
    let begun = Instant::now();
    let (flags, last) = frames.next().await.expect("a whole stream").expect("a frame");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!((flags, &last["error"]["code"]), (2, &json!("deadline_exceeded")));
    until("it is killed", async || state_of(pid).is_none()).await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_broken_at_the_callers_interval() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (mut frames, _) = rpc.with("keepalive-ping-interval", "1").start(bash("sleep 4353")).await;
    assert_eq!(frames.event().await, json!({ "keepalive": {} }));
    ground.playground.shutdown().await;
}
