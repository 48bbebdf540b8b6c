//! However the playground ends, nothing of its sandboxes is left.

use std::{
    ffi::OsStr,
    fs::File,
    os::unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    process::{Command, Stdio},
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use tokio::runtime::Runtime;

use crate::playground_support::{
    Ground, processes_with,
    program::{Program, command},
    until,
};

/// A daemon that has left parent and session and lets no hangup end it, beside an ordinary child.
const TEMPLATE: [&str; 2] = ["--template", "stubborn=(trap '' HUP; setsid sleep 4341 &); sleep 4342"];

/// Starts a program, kills it at the end of its own input, and takes what that leaves. (This process, where other tests
/// have playgrounds, would end it.)
const ORPHANAGE: &str = "import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
try:
    sys.stdin.read()
finally:
    child.kill()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
";

/// Whatever ends the program that is started, nothing is left.
async fn ends_with(mut program: Program, end: impl FnOnce(&mut Program)) {
    let api = program.api();
    let (running, paused) = (api.sleeper("stubborn").await, api.sleeper("stubborn").await);
    let fresh = api.sleeper("counter").await;
    until("everything runs", async || running.processes().await.len() == 4 && paused.processes().await.len() == 4)
        .await;
    assert_eq!(paused.post("pause").await.status, 204);
    let folder = running.folder().parent().expect("the playground's").to_owned();
    let ids = [running.id, paused.id, fresh.id];
    end(&mut program);
    until("it ends", async || program.child().try_wait().expect("one's own child").is_some()).await;
    until("no process is left", async || ids.iter().all(|id| processes_with(id).is_empty())).await;
    until("no file is left", async || !folder.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_playground_leaves_nothing() {
    let inner = command(&TEMPLATE);
    let mut outer = Command::new("python3");
    outer.args(["-c", ORPHANAGE]).arg(inner.get_program()).args(inner.get_args());
    outer.env_remove("E2B_API_KEY").stdin(Stdio::piped()).stderr(Stdio::null());
    ends_with(Program::run(outer).await, |program| drop(program.child().stdin.take())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_playground_leaves_nothing() {
    ends_with(Program::start(&TEMPLATE).await, |program| program.signal(Signal::INT)).await;
}

/// In a process that goes on.
#[test]
fn a_playground_that_is_only_dropped_leaves_nothing() {
    let runtime = Runtime::new().expect("a runtime");
    let (ground, folder, ids) = runtime.block_on(async {
        let ground = Ground::start(&TEMPLATE).await;
        let (running, paused) = (ground.api.sleeper("stubborn").await, ground.api.sleeper("base").await);
        until("everything runs", async || running.processes().await.len() == 4).await;
        assert_eq!(paused.post("pause").await.status, 204);
        let folder = running.folder().parent().expect("the playground's").to_owned();
        (ground, folder, [running.id, paused.id])
    });
    // What knows its sandboxes ends with the runtime.
    drop((ground, runtime));
    Runtime::new().expect("a runtime").block_on(async {
        until("no process is left", async || ids.iter().all(|id| processes_with(id).is_empty())).await;
        until("no file is left", async || !folder.exists()).await;
    });
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
        let mut command = command(&TEMPLATE);
        command.stdin(stdin).stderr(stderr);
        let mut program = Program::run(command).await;
        let api = program.api();
        program.signal(Signal::HUP);
        let sandbox = api.sleeper("counter").await;
        assert_eq!(api.get(&format!("/sandboxes/{}", sandbox.id)).await.status, 200, "it goes on");
        drop(keyboard);
        program.signal(Signal::HUP);
        until("it ends", async || program.child().try_wait().expect("one's own child").is_some()).await;
        assert_eq!(program.child().wait().expect("ended").code(), Some(0));
        until("no process is left", async || processes_with(&sandbox.id).is_empty()).await;
    }
}
