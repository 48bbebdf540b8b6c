//! However the playground ends, nothing of its sandboxes is left.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::playground_support::{Api, PROGRAM, client, processes_with, until};

const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";
/// A daemon that has left parent and session and lets no hangup end it, beside an ordinary child.
const TEMPLATE: &str = "stubborn=(trap '' HUP; setsid sleep 4341 &); sleep 4342";

async fn playground() -> (Child, Api) {
    let mut child = Command::new(PROGRAM)
        .args(["dev", "--api", "127.0.0.1:0", "--proxy", "127.0.0.1:0", "--health", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0", "--template", TEMPLATE])
        .env("E2B_API_KEY", KEY)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (told, address) = tokio::sync::oneshot::channel();
    // Read to the end: who prints into a closed pipe fails.
    std::thread::spawn(move || {
        let found = said.find_map(|line| {
            let line = line.expect("a line");
            let address = line.trim().strip_prefix("control API")?.trim();
            Some(address.to_owned())
        });
        let _ = told.send(found);
        said.for_each(drop);
    });
    let base = address.await.expect("read");
    let api = Api { client: client(), base: base.expect("it says where its API is"), key: KEY.to_owned() };
    (child, api)
}

async fn ends_with(signal: Signal) {
    let (mut child, api) = playground().await;
    let (running, paused) = (api.sleeper("stubborn").await, api.sleeper("stubborn").await);
    let fresh = api.sleeper("counter").await;
    until("everything runs", async || running.processes().await.len() == 4 && paused.processes().await.len() == 4)
        .await;
    assert_eq!(paused.post("pause").await.status, 204);
    let ids = [running.id, paused.id, fresh.id];
    let folders: Vec<_> = std::fs::read_dir(std::env::temp_dir())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(&ids[0]).exists())
        .collect();
    assert_eq!(folders.len(), 1);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a number");
    kill_process(pid, signal).expect("signalled");
    tokio::task::spawn_blocking(move || child.wait()).await.expect("waited").expect("ended");
    until("no process is left", async || ids.iter().all(|id| processes_with(id).is_empty())).await;
    until("no file is left", async || !folders[0].exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_playground_leaves_nothing() {
    ends_with(Signal::KILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_playground_leaves_nothing() {
    ends_with(Signal::INT).await;
}
