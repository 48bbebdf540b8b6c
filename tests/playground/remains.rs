//! Whatever programs have done to be in the way or to get away, it ends with their sandbox.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    envd::{bash, connect::Rpc},
    playground_support::{
        PROGRAM, Sandbox, processes_with,
        program::{Program, command, command_by},
        state_of, until,
    },
};

/// Deeper than any path is long, and than a stack is.
const DEEP: &str = "python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(20000)]\"";

async fn runs(rpc: &Rpc, script: &str) {
    let ended = rpc.run(bash(script)).await;
    assert_eq!(ended.end["exitCode"], 0, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_any_depth_and_mode_go_by_a_call_and_with_their_sandbox() {
    // On disks, folders by the ten thousand take minutes.
    let place = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
    let mut command = command(&[]);
    command.env("TMPDIR", place.path());
    let program = Program::run(command).await;
    let api = program.api();
    let sandbox = api.sleeper("base").await;
    let rpc = Rpc::to(&api.client, &sandbox);
    runs(&rpc, &format!("{DEEP} && mkdir -p no && touch no/file && chmod 000 no")).await;
    for name in ["d", "no"] {
        rpc.done("filesystem.Filesystem/Remove", &json!({ "path": name })).await;
        let (status, _) = rpc.unary("filesystem.Filesystem/Stat", &json!({ "path": name })).await;
        assert_eq!(status, 404, "{name}");
    }
    runs(&rpc, &format!("{DEEP}; chmod 000 /tmp /home/user /home")).await;
    assert_eq!(sandbox.kill().await.status, 204);
    program.end().await;
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("a folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The number of a process that has left everything by which it could be known, but for being there.
async fn fugitive(rpc: &Rpc) -> i32 {
    let ended = rpc.run(bash("env -i setsid sleep 4381 > /dev/null 2>&1 < /dev/null & echo $!")).await;
    ended.stdout.trim().parse().expect("a number")
}

async fn agent(sandbox: &Sandbox) -> Pid {
    Pid::from_raw(sandbox.processes().await[0].0).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_sandbox_whose_agent_was_killed() {
    let program = Program::start(&[]).await;
    let api = program.api();
    let (one, other) = (api.sleeper("base").await, api.sleeper("counter").await);
    let (in_one, in_other) = (Rpc::to(&api.client, &one), Rpc::to(&api.client, &other));
    let (gone, kept) = (fugitive(&in_one).await, fugitive(&in_other).await);
    assert!(state_of(gone).is_some() && state_of(kept).is_some());
    kill_process(agent(&one).await, Signal::KILL).expect("killed");
    until("the sandbox is gone", async || one.detail().await.told() == (404, "killed")).await;
    until("and all that was in it", async || state_of(gone).is_none()).await;
    assert!(state_of(kept).is_some() && other.count().await == 1, "what is in others goes on");
    assert_eq!(other.post("pause").await.status, 204);
    kill_process(agent(&other).await, Signal::KILL).expect("killed");
    until("also what slept", async || state_of(kept).is_none()).await;
    program.end().await;
}

/// So long, and a fraction of this run's own: another run on this machine has other processes.
fn long(seconds: u32) -> String {
    format!("{seconds}.{}", std::process::id())
}

/// Ended when dropped, for it cannot be asked to.
struct Ended(Pid);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn sleeps(seconds: u32) -> Vec<i32> {
    processes_with(&format!("sleep\u{0}{}", long(seconds)))
}

/// `client-proxy dev` as what `sh` becomes after the script.
fn after(script: &str, mut sh: Command) -> Command {
    sh.args(["-c", &format!("{script} exec \"$@\""), "sh", PROGRAM]);
    command_by(sh, &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_whoever_became_the_playground_outlives_its_sandboxes() {
    let place = TempDir::new().expect("a folder");
    let flag = place.path().join("there");
    let flag = flag.display();
    let daemon = format!("setsid sh -c 'touch {flag}; sleep {} & wait' &", long(4384));
    // It has a session of its own before there is a playground.
    let script = format!("{daemon} until [ -e {flag} ]; do sleep 0.02; done;");
    let program = Program::run(after(&script, Command::new("sh"))).await;
    until("it runs", async || sleeps(4384).len() == 1).await;
    let _daemon = Ended(Pid::from_raw(sleeps(4384)[0]).expect("a number"));
    let sandbox = program.api().sleeper("base").await;
    let gone = fugitive(&Rpc::to(&program.api().client, &sandbox)).await;
    kill_process(agent(&sandbox).await, Signal::KILL).expect("killed");
    until("what the sandbox leaves is gone", async || state_of(gone).is_none()).await;
    assert_eq!(sleeps(4384).len(), 1, "it goes on");
    program.end().await;
}

/// Needs a machine that gives user namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_process_of_a_container_ends_what_sandboxes_leave_and_nothing_else() {
    let place = TempDir::new().expect("a folder");
    let mut container = Command::new("unshare");
    container.args(["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"]);
    container.env("TMPDIR", place.path());
    let script = format!("(until [ -e \"$TMPDIR/go\" ]; do sleep 0.02; done; setsid sleep {} &) &", long(4385));
    let mut program = Program::run(after(&script, container)).await;
    let container = Ended(Pid::from_child(program.child()));
    std::fs::write(place.path().join("go"), "").expect("written");
    until("a daemon comes later", async || sleeps(4385).len() == 1).await;
    let sandbox = program.api().sleeper("base").await;
    let escapes = format!("setsid sleep {} > /dev/null 2>&1 < /dev/null &", long(4386));
    runs(&Rpc::to(&program.api().client, &sandbox), &escapes).await;
    until("so does a sandbox's", async || sleeps(4386).len() == 1).await;
    let agent = processes_with(&format!("root\u{0}--sandbox\u{0}{}", sandbox.id));
    kill_process(Pid::from_raw(agent[0]).expect("a number"), Signal::KILL).expect("killed");
    until("that is gone", async || sleeps(4386).is_empty()).await;
    until("the sandbox, too", async || sandbox.detail().await.told() == (404, "killed")).await;
    assert_eq!(sandbox.kill().await.status, 404);
    assert_eq!(sleeps(4385).len(), 1, "the other goes on");
    drop((container, program));
    until("all is gone with the first", async || sleeps(4385).is_empty()).await;
}
