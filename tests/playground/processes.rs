//! The playground's sandboxes are real processes: they stop, go on, and end with everything they started.

use std::{
    io::Read as _,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use client_proxy::types::SandboxId;
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::playground_support::{Ground, processes_with, state_of, until};

/// Children that fork all the time, a daemon that has left session and parent, a zombie, a process with
/// many threads, and one that its own people had stopped.
const CROWD: &str = r#"
    (while :; do sleep 0.002; done) &
    (while :; do python3 -c 'import subprocess
while True: subprocess.call("true")'; done) &
    (setsid sh -c 'sleep 4321 &' &)
    env -i setsid sleep 4322 &
    sleep 4323 & kill -STOP $!
    python3 -c 'import os, threading, time
if os.fork() == 0: os._exit(0)
for _ in range(20): threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
time.sleep(4324)' &
    wait
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_every_process_and_a_resume_continues_them() {
    let ground = Ground::start(&["--template", &format!("crowd={CROWD}")]).await;
    let sandbox = ground.api.sleeper("crowd").await;
    until("everything runs", async || {
        let all = sandbox.processes().await;
        all.iter().filter(|(_, name, _)| name == "sleep").count() >= 3
            && all.iter().filter(|(_, name, _)| name == "python3").count() >= 2
    })
    .await;
    for round in 0..8 {
        assert_eq!(sandbox.post("pause").await.status, 204);
        assert_eq!(sandbox.state().await, "paused");
        let first = sandbox.processes().await;
        assert!(first.len() >= 8, "{first:?}");
        for (pid, name, state) in &first {
            assert!(["T", "t"].contains(&state.as_str()), "round {round}: {pid} {name} {state}");
            assert!(matches!(state_of(*pid), Some('T' | 't')));
        }
        assert_eq!(sandbox.processes().await, first, "a stopped tree does not change");
        assert_eq!(sandbox.wake().await.status, 201);
        let stopped = sandbox.processes().await;
        let stopped: Vec<_> = stopped.iter().filter(|(_, _, state)| state == "T").collect();
        assert_eq!(stopped.len(), 1, "only what was stopped before still is: {stopped:?}");
    }
    // Killed while paused, it leaves nothing.
    assert_eq!(sandbox.post("pause").await.status, 204);
    let last = sandbox.processes().await;
    assert_eq!(sandbox.kill().await.status, 204);
    for (pid, name, _) in last {
        assert!(matches!(state_of(pid), None | Some('Z')), "{name} survived");
    }
    assert!(processes_with(&sandbox.id).is_empty());
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_templates_command_runs_as_all_programs_of_the_sandbox_do() {
    let told = format!("/tmp/told-{}", std::process::id());
    let template = format!("told=env -0 >all; pwd >{told}; id -un >>{told}");
    let ground = Ground::start(&["--template", &template]).await;
    let environment = json!({ "OWN": "own", "E2B_SANDBOX_ID": "other", "CLIENT_PROXY_SANDBOX": "other" });
    let sandbox = ground.api.create(json!({ "templateID": "told", "envVars": environment })).await;
    let read = async |path: &str| {
        let file = ground.api.client.get(sandbox.files(path)).header("X-Access-Token", &sandbox.token).send().await;
        file.expect("an answer").text().await.expect("a body")
    };
    until("it has run", async || read(&told).await == "/home/user\nuser\n").await;
    assert!(!std::path::Path::new(&told).exists(), "it is the sandbox's own");
    let all = read("all").await;
    let all: Vec<_> = all.split_terminator('\0').filter_map(|one| one.split_once('=')).collect();
    for (name, value) in [
        ("HOME", "/home/user"),
        ("USER", "user"),
        ("OWN", "own"),
        ("E2B_SANDBOX_ID", sandbox.id.as_str()),
        ("CLIENT_PROXY_SANDBOX", sandbox.id.as_str()),
    ] {
        assert!(all.contains(&(name, value)), "{name}: {all:?}");
    }
    // What a shell sets by itself, and what is the machine's.
    let known = ["HOME", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHLVL", "TZ", "USER", "_"];
    for (name, _) in std::env::vars().filter(|(name, _)| !known.contains(&name.as_str())) {
        assert!(all.iter().all(|(told, _)| *told != name), "{name} is the playground's");
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_survives_a_pause() {
    let ground = Ground::start(&[]).await;
    let sandbox = ground.api.sleeper("counter").await;
    for want in 1..=5 {
        assert_eq!(sandbox.count().await, want);
        assert_eq!(sandbox.post("pause").await.status, 204);
        assert_eq!(sandbox.wake().await.status, 201);
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_without_memory_keeps_the_files_only() {
    let ground = Ground::start(&[]).await;
    let sandbox = ground.api.sleeper("counter").await;
    let client = &ground.api.client;
    let sent = client.post(sandbox.files("a.txt")).header("X-Access-Token", &sandbox.token);
    assert_eq!(sent.body("kept").send().await.expect("sent").status(), 200);
    assert_eq!(sandbox.count().await, 1);
    assert_eq!(sandbox.post_with("pause", json!({ "memory": false })).await.status, 204);
    assert!(sandbox.processes().await.is_empty());
    assert_eq!(sandbox.wake().await.told(), (404, "filesystem_only"));
    assert_eq!(sandbox.post_with("connect", json!({ "timeout": 60 })).await.status, 201);
    let ip = sandbox.detail().await.body["nodeIP"].as_str().expect("a node").to_owned();
    let url = format!("http://{ip}:49983/files?path=a.txt");
    let kept = client.get(url).header("X-Access-Token", &sandbox.token).send().await;
    assert_eq!(kept.expect("an answer").text().await.expect("a body"), "kept");
    let count = client.get(format!("http://{ip}:8000/")).send().await.expect("an answer");
    assert_eq!(count.text().await.expect("a body").trim(), "1");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_resets_the_connections_and_keeps_the_listeners() {
    let ground = Ground::start(&[]).await;
    let sandbox = ground.api.sleeper("counter").await;
    let address = SocketAddr::from((sandbox.ip, 8000));
    let mut open = TcpStream::connect(address).expect("connected");
    open.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    // The server has taken it when it has answered.
    std::io::Write::write_all(&mut open, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut head = [0; 12];
    open.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(sandbox.post("pause").await.status, 204);
    let error = spawn_blocking(move || {
        let mut rest = Vec::new();
        open.read_to_end(&mut rest).expect_err("a reset").kind()
    });
    assert_eq!(error.await.expect("read"), std::io::ErrorKind::ConnectionReset);
    // What comes while it sleeps waits in the listener's queue.
    let client = ground.api.client.clone();
    let waiting = tokio::spawn(client.get(format!("http://{address}/")).send());
    assert_eq!(sandbox.wake().await.status, 201);
    let text = waiting.await.expect("done").expect("an answer").text().await.expect("a body");
    assert_eq!(text.trim(), "2");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_root_is_killed_is_gone_with_all_it_started() {
    let template = "stubborn=(setsid sleep 4331 &); trap '' HUP TERM; sleep 4332";
    let ground = Ground::start(&["--template", template]).await;
    let sandbox = ground.api.sleeper("stubborn").await;
    until("everything runs", async || sandbox.processes().await.len() == 4).await;
    let all = sandbox.processes().await;
    let root = rustix::process::Pid::from_raw(all[0].0).expect("a number");
    rustix::process::kill_process(root, rustix::process::Signal::KILL).expect("killed");
    until("it is gone", async || sandbox.detail().await.told() == (404, "killed")).await;
    until("nothing is left", async || processes_with(&sandbox.id).is_empty()).await;
    until("everything is collected", async || all.iter().all(|(pid, _, _)| state_of(*pid).is_none())).await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_running_and_paused_sandboxes() {
    let ground = Ground::start(&[]).await;
    let (running, paused) = (ground.api.sleeper("counter").await, ground.api.sleeper("base").await);
    assert_eq!(paused.post("pause").await.status, 204);
    ground.playground.shutdown().await;
    for id in [&running.id, &paused.id] {
        assert!(processes_with(id).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_sandboxs_own_listeners_may_be_dialled() {
    let free = std::net::TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let template = format!("wild=exec python3 -m http.server {port} --bind 0.0.0.0");
    // Until it listens.
    let ground = Ground::start(&["--template", &template, "--command-wait", "1m"]).await;
    let counter = ground.api.sleeper("counter").await;
    let base = ground.api.sleeper("base").await;
    let wild = ground.api.sleeper("wild").await;
    let stranger = std::net::TcpListener::bind("[::]:0").expect("a free port");
    let strange = stranger.local_addr().expect("an address").port();
    let guard = ground.playground.listener_guard();
    let cases = [
        (&counter, counter.ip, 8000, true),
        (&counter, counter.ip, 49983, true),
        // The wildcard of another sandbox, or of a stranger, is not its own.
        (&base, base.ip, port, false),
        (&base, base.ip, strange, false),
        (&counter, counter.ip, strange, false),
        (&wild, wild.ip, port, true),
        // Another sandbox's address, and nobody's port.
        (&base, counter.ip, 8000, false),
        (&base, base.ip, 1, true),
    ];
    for (sandbox, ip, port, want) in cases {
        let id = SandboxId::new(&sandbox.id).expect("an id");
        assert_eq!(guard.may_dial(&id, (ip, port).into()).await, want, "{ip}:{port}");
    }
    let id = SandboxId::new("unknown").expect("an id");
    assert!(!guard.may_dial(&id, (base.ip, 49983).into()).await);
    ground.playground.shutdown().await;
}
