//! However the playground ends, nothing of its sandboxes is left.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead as _, BufReader},
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    process::{Child, Command, Stdio},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::playground_support::{Api, PROGRAM, client, processes_with, until};

const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";
/// A daemon that has left parent and session and lets no hangup end it, beside an ordinary child.
const TEMPLATE: &str = "stubborn=(trap '' HUP; setsid sleep 4341 &); sleep 4342";

async fn playground(stdin: Stdio, stderr: Stdio) -> (Child, Api) {
    let mut child = Command::new(PROGRAM)
        .args(["dev", "--api", "127.0.0.1:0", "--proxy", "127.0.0.1:0", "--health", "127.0.0.1:0"])
        .args(["--admin", "127.0.0.1:0", "--template", TEMPLATE])
        .env("E2B_API_KEY", KEY)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(stderr)
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
    let (mut child, api) = playground(Stdio::null(), Stdio::null()).await;
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
    kill_process(Pid::from_child(&child), signal).expect("signalled");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_ends_the_playground_only_with_its_terminal() {
    for typed in [true, false] {
        // Nobody's controlling terminal: the signals are this test's own.
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("one's own terminal");
        let name = ptsname(&keyboard, Vec::new()).expect("its name");
        let flags = i32::try_from(OpenptFlags::NOCTTY.bits()).expect("a flag");
        let name = OsStr::from_bytes(name.to_bytes());
        let end = File::options().read(true).write(true).custom_flags(flags).open(name).expect("the other end");
        // Where the log goes to a file, the terminal is where one types.
        let (stdin, stderr) = if typed { (end.into(), Stdio::null()) } else { (Stdio::null(), end.into()) };
        let (mut child, api) = playground(stdin, stderr).await;
        let hangup = || kill_process(Pid::from_child(&child), Signal::HUP).expect("it lives");
        hangup();
        let sandbox = api.sleeper("counter").await;
        assert_eq!(api.get(&format!("/sandboxes/{}", sandbox.id)).await.status, 200, "it goes on");
        drop(keyboard);
        hangup();
        until("it ends", async || child.try_wait().expect("one's own child").is_some()).await;
        assert_eq!(child.wait().expect("ended").code(), Some(0));
        until("no process is left", async || processes_with(&sandbox.id).is_empty()).await;
    }
}
