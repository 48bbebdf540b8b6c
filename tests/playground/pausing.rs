//! Requests that come while their sandbox falls asleep, over connections that envd has served before.

use std::{
    cell::Cell,
    io::{ErrorKind, Read as _},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    house::House,
    playground_support::{Ground, Sandbox, state_of, until},
};

const CALLERS: usize = 8;

/// Each by its connection, all of which have served before.
async fn calls(house: &House, sandbox: &Sandbox) -> Vec<(u16, Value)> {
    let call = |number: usize| house.call(sandbox, "ListDir", json!({ "path": "/", "depth": number % 2 + 1 }));
    futures_util::future::join_all((0..CALLERS).map(call)).await
}

fn stopped(all: &[(i32, String, String)]) -> bool {
    all.iter().all(|(pid, _, _)| state_of(*pid) == Some('T'))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_envd_has_not_read_is_answered_after_the_wake() {
    let house = House::start_with(&["--pause-delay", "300ms"]).await;
    let sandbox = house.ground.api.sleeper("base").await;
    calls(&house, &sandbox).await;
    let processes = sandbox.processes().await;
    for pauses in 1..=2 {
        let (paused, answers) = tokio::join!(sandbox.post("pause"), async {
            until("it is frozen", async || stopped(&processes)).await;
            calls(&house, &sandbox).await
        });
        assert_eq!(paused.status, 204);
        for (status, answer) in answers {
            assert_eq!(status, 200, "{answer}");
        }
        assert_eq!(sandbox.inside().await["wakes"], pauses, "all of them by one wake");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_the_middle_is_cut_and_changes_nothing() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "before").await;
    let mut upload = TcpStream::connect(house.proxy).await.expect("a proxy");
    let head = format!(
        "POST /files?path=a.txt HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {}\r\nE2b-Sandbox-Port: 49983\r\n\
         X-Access-Token: {}\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\nafter",
        sandbox.id, sandbox.token
    );
    upload.write_all(head.as_bytes()).await.expect("a proxy");
    let agent = sandbox.processes().await[0].0;
    until("envd keeps what comes", async || has_an_unnamed_file(agent)).await;
    assert_eq!(sandbox.post("pause").await.status, 204);
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("upstream_failed") {
        let more = upload.read_buf(&mut read).await.expect("an answer");
        assert!(more > 0, "{}", String::from_utf8_lossy(&read));
    }
    assert!(read.starts_with(b"HTTP/1.1 502 "), "{}", String::from_utf8_lossy(&read));
    assert_eq!(sandbox.state().await, "paused", "nobody wakes it for that");
    assert_eq!(house.get(&sandbox, "a.txt").await, (200, "before".to_owned()));
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_a_connection_hears_that_it_sleeps_and_who_hears_that_has_lost_all() {
    let ground = Ground::start(&[]).await;
    for memory in [true, false] {
        let sandbox = ground.api.sleeper("base").await;
        let (mut some, mut all) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            some.push(used(&sandbox).await);
            all.push(used(&sandbox).await.into_std().expect("a socket"));
        }
        let paused = async {
            assert_eq!(sandbox.post_with("pause", json!({ "memory": memory })).await.status, 204);
        };
        let loses = async {
            let lost = some.iter_mut().map(|socket| Box::pin(socket.read_u8()));
            futures_util::future::select_all(lost).await.0.expect_err("nobody says anything");
            assert_eq!(sandbox.state().await, "paused", "with its memory: {memory}");
        };
        let hears = async {
            while sandbox.state().await == "running" {}
            let open = all.iter_mut().filter_map(|socket| socket.read(&mut [0]).err());
            let open = open.filter(|error| error.kind() == ErrorKind::WouldBlock).count();
            assert_eq!(open, 0, "with its memory: {memory}");
        };
        tokio::join!(paused, loses, hears);
    }
    ground.playground.shutdown().await;
}

/// A connection that envd has served before.
async fn used(sandbox: &Sandbox) -> TcpStream {
    let mut socket = TcpStream::connect((sandbox.ip, 49983)).await.expect("envd");
    socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("envd");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.expect("an answer"));
    }
    socket
}

/// The beginning of an upload.
fn has_an_unnamed_file(pid: i32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").flatten();
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|target| target.to_string_lossy().ends_with("(deleted)"))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_calls_around_pauses_only_those_fail_that_envd_may_have_read() {
    // So long does it lie frozen before its connections are reset: whoever calls meanwhile has called by then. A
    // request that crosses the reset is lost, and nobody can tell whether it was read.
    let house = House::start_with(&["--pause-delay", "1s"]).await;
    let sandbox = house.ground.api.sleeper("base").await;
    calls(&house, &sandbox).await;
    let agent = sandbox.processes().await[0].0;
    let (answered, read, unread) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for _ in 0..6 {
        let paused = Cell::new(false);
        let caller = async || {
            while !paused.get() {
                let began_frozen = state_of(agent) == Some('T');
                let (status, answer) = house.call(&sandbox, "ListDir", json!({ "path": "/" })).await;
                let count = match (status, began_frozen) {
                    (200, _) => &answered,
                    (_, false) => &read,
                    (_, true) => &unread,
                };
                count.set(count.get() + 1);
                let told = answer["message"].as_str().is_some_and(|text| text.contains("may have been processed"));
                assert!(status == 200 || told, "{answer}");
            }
        };
        let pause = async {
            assert_eq!(sandbox.post("pause").await.status, 204);
            paused.set(true);
        };
        tokio::join!(pause, caller(), caller(), caller(), caller());
    }
    assert!(answered.get() > 0);
    assert_eq!(unread.get(), 0, "{} answered, {} may have been read", answered.get(), read.get());
    house.end().await;
}
