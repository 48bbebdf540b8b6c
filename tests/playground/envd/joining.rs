//! Several listeners of one program: who leaves, who comes, who is slow.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{bash, lines, of, sandbox};
use crate::playground_support::until;

/// Bytes that a process has written so far (`proc_pid_io(5)`).
fn written(pid: u64) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Its memory, in KiB.
fn memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_survives_its_stream_and_several_may_join() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let mut wanted = bash("read word; echo $word");
    wanted["stdin"] = true.into();
    wanted["tag"] = "mine".into();
    let (frames, pid) = rpc.start(wanted.clone()).await;
    drop(frames);
    let mut info = json!({ "pid": pid, "tag": "mine" });
    info["config"] = wanted["process"].clone();
    info["config"]["envs"] = json!({});
    assert_eq!(rpc.done("List", &json!({})).await, json!({ "processes": [info] }));
    let mut by_number = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
    let mut by_tag = rpc.stream("Connect", &[json!({ "process": { "tag": "mine" } })]).await;
    for frames in [&mut by_number, &mut by_tag] {
        assert_eq!(frames.event().await, json!({ "start": { "pid": pid } }));
    }
    rpc.done("SendInput", &of(pid, &json!({ "input": { "stdin": super::base64("heard\n") } }))).await;
    for frames in [&mut by_number, &mut by_tag] {
        let ended = frames.ended().await;
        assert_eq!((&*ended.stdout, ended.end["exitCode"].as_i64()), ("heard\n", Some(0)));
    }
    let (flags, last) = rpc.stream("Connect", &[of(pid, &json!({}))]).await.next().await.expect("whole").expect("one");
    assert_eq!((flags, &last["error"]["code"]), (2, &json!("not_found")));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_listener_costs_no_memory_and_one_that_leaves_lets_the_program_go_on() {
    let (ground, sandbox, rpc) = sandbox(json!({})).await;
    let agent = sandbox.processes().await[0].0;
    let (mut frames, pid) = rpc.start(json!({ "process": { "cmd": "yes" } })).await;
    frames.said("stdout").await;
    let before = memory(agent);
    // Nobody reads: sooner or later it stands still.
    let mut last = 0;
    let mut still = 0;
    until("it is held up", async || {
        let now = written(pid);
        still = if now == last { still + 1 } else { 0 };
        last = now;
        still == 50
    })
    .await;
    assert!(memory(agent) < before + 24 * 1024, "{before} KiB before, {} KiB now", memory(agent));
    drop(frames);
    until("it goes on", async || written(pid) > last + (64 << 20)).await;
    assert!(memory(agent) < before + 24 * 1024, "{before} KiB before, {} KiB now", memory(agent));
    rpc.done("SendSignal", &of(pid, &json!({ "signal": "SIGNAL_SIGTERM" }))).await;
    until("it is over", async || rpc.done("List", &json!({})).await["processes"] == json!([])).await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_does_not_read_is_turned_out_where_others_do() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (mut idle, pid) = rpc.start(bash("until [ -e go ]; do sleep 0.01; done; seq 3000000")).await;
    let mut busy = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
    assert_eq!(busy.event().await, json!({ "start": { "pid": pid } }));
    assert_eq!(rpc.run(bash("touch go")).await.end["exitCode"], 0);
    let ended = timeout(Duration::from_secs(30), busy.ended()).await.expect("not held up for long");
    assert!(ended.stdout == lines(1..3_000_001), "{} bytes", ended.stdout.len());
    assert_eq!((&ended.end["exitCode"], &ended.last), (&json!(0), &json!({})));
    let last = loop {
        let (flags, message) = idle.next().await.expect("a whole stream").expect("a last frame");
        if flags != 0 {
            break message;
        }
    };
    assert_eq!(last["error"]["code"], "aborted", "it is told what it missed");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_that_left_a_silent_program_take_no_room_and_the_rest_are_bounded() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (_frames, pid) = rpc.start(bash("sleep 4365")).await;
    for _ in 0..100 {
        let mut left = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
        assert_eq!(left.event().await, json!({ "start": { "pid": pid } }));
    }
    let mut here = Vec::new();
    let refused = loop {
        let mut frames = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
        let (flags, message) = frames.next().await.expect("whole").expect("a frame");
        if flags != 0 {
            break message;
        }
        here.push(frames);
        assert!(here.len() < 1000, "without end");
    };
    assert_eq!(refused["error"]["code"], "resource_exhausted");
    here.pop();
    until("its place is free", async || {
        let mut frames = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
        frames.next().await.expect("whole").expect("a frame").0 == 0
    })
    .await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_lose_nothing() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let runs = (1..21).map(|number| {
        let rpc = rpc.clone();
        tokio::spawn(async move { rpc.run(bash(&format!("seq {number}000 {number}999"))).await })
    });
    for (number, run) in runs.collect::<Vec<_>>().into_iter().enumerate() {
        let ended = run.await.expect("done");
        let want = lines(number * 1000 + 1000..number * 1000 + 2000);
        assert!(ended.stdout == want, "{number}: {} bytes", ended.stdout.len());
        assert_eq!((&ended.end["exitCode"], &ended.last), (&json!(0), &json!({})));
    }
    let all: Value = rpc.done("List", &json!({})).await;
    assert_eq!(all, json!({ "processes": [] }));
    ground.playground.shutdown().await;
}
