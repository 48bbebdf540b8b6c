//! Direct mode: a sandbox that freezes while its answer is awaited. Its kernel takes connections and bytes, and
//! nobody reads them.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::support::{
    Answer, DIRECT, Proxy, Raw, Server, answer,
    control_plane::{ControlPlane, Gate, Sandbox, Step},
    eventually, request,
    wire::Node,
    within_a_second,
};

/// Looks again soon.
const IMPATIENT: &str = "cache.ttl = \"100ms\"\ncache.negative_ttl = \"100ms\"\n";

/// A sandbox whose application takes one request and answers when the gate opens.
struct World {
    control: ControlPlane,
    sandbox: Sandbox,
    app: Server,
    thaw: Gate,
    proxy: Proxy,
}

impl World {
    async fn new(more: &str) -> Self {
        let control = ControlPlane::start().await;
        let thaw = Gate::closed();
        let frozen = thaw.clone();
        let app = Server::start(move |request| {
            let frozen = frozen.clone();
            async move {
                frozen.opened().await;
                let body = request.into_body().collect().await.expect("a whole body").to_bytes();
                answer(200, body)
            }
        })
        .await;
        let proxy = Proxy::start(&control.config(&format!("{DIRECT}{IMPATIENT}{more}")));
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1");
        Self { control, sandbox, app, thaw, proxy }
    }

    async fn post(&self) -> Answer {
        let body = Full::new(Bytes::from_static(b"once"));
        self.proxy.send(request("POST", self.app.address.port(), "abc", "/").body(body).expect("a request")).await
    }

    /// The answer to a request that is with the application when `then` happens.
    async fn meanwhile(&self, then: impl AsyncFnOnce()) -> Answer {
        let begun = async {
            eventually("the application has it", async || self.app.requests() == 1).await;
            then().await;
        };
        let (answer, ()) = tokio::join!(self.post(), begun);
        assert_eq!((self.app.requests(), self.app.connections()), (1, 1), "nothing is sent twice");
        answer
    }
}

#[tokio::test]
async fn a_sandbox_found_asleep_is_woken_and_the_same_exchange_is_answered() {
    let world = World::new("").await;
    world.sandbox.wakes([Step::Truly]);
    let answer = world
        .meanwhile(async || {
            world.sandbox.paused("127.0.0.1");
            world.proxy.metric_becomes("client_proxy_wakes_total", 1.0).await;
            // Then it was looked for again, and found awake.
            let lookups = world.sandbox.lookups();
            eventually("all is known", async || world.sandbox.lookups() > lookups + 1).await;
            world.thaw.open();
        })
        .await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "once".into()));
    let timing = answer.header("server-timing");
    assert!(timing.starts_with("hold;dur=") && timing.contains(", resume;dur="), "{timing}");
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn an_answer_that_comes_before_the_wake_s_own_is_passed_on_at_once() {
    let world = World::new("").await;
    let (gate, thaw) = (Gate::closed(), world.thaw.clone());
    world.sandbox.wakes([Step::Truly.after(&gate).doing(move || thaw.open())]);
    let answer = world.meanwhile(async || drop(world.sandbox.paused("127.0.0.1").clone())).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "once".into()));
    gate.open();
    eventually("the wake ends", async || world.proxy.count("client_proxy_wakes_total").await == 1).await;
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_sandbox_found_killed_is_gone() {
    for (step, reason) in [(Step::Truly, "unknown"), (Step::gone("killed"), "killed")] {
        let world = World::new("").await;
        let answer = world.meanwhile(async || drop(world.sandbox.killed().always_looks_up(step).clone())).await;
        assert_eq!((answer.status.as_u16(), answer.error()), (502, "sandbox_not_found".into()));
        assert_eq!(answer.json()["reason"], reason);
        world.proxy.is_idle_upstream_too().await;
    }
}

#[tokio::test]
async fn a_sandbox_found_elsewhere_does_not_answer_here_any_more() {
    let world = World::new("").await;
    let answer = world.meanwhile(async || drop(world.sandbox.running("127.0.0.2").clone())).await;
    // It lives: SDKs read a 502 as "dead".
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    assert!(["1", "2"].contains(&answer.header("retry-after")), "{answer:?}");
    assert!(answer.text().contains("may have been processed"), "{}", answer.text());
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_sandbox_that_may_not_be_woken_is_told() {
    let world = World::new("").await;
    let barred = serde_json::json!({ "autoResume": false });
    let answer =
        world.meanwhile(async || drop(world.sandbox.paused("127.0.0.1").set("/lifecycle", barred).clone())).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["reason"]), (502, &"auto_resume_off".into()));
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn an_application_that_only_thinks_is_left_alone_whatever_the_catalog_does() {
    let world = World::new("catalog.rest.timeout = \"100ms\"\n").await;
    let failed = "client_proxy_lookups_total{outcome=\"error\"}";
    let looked = "client_proxy_lookups_total{outcome=\"running\"}";
    let at_least = async |name: &str, count: usize| {
        eventually(&format!("{name} ≥ {count}"), async || world.proxy.count(name).await >= count).await;
    };
    let answer = world
        .meanwhile(async || {
            at_least(looked, 3).await;
            world.sandbox.always_looks_up(Step::Hangs);
            at_least(failed, 2).await;
            world.sandbox.always_looks_up(Step::Garbage);
            at_least(failed, 4).await;
            world.control.stop().await;
            at_least(failed, 6).await;
            world.thaw.open();
        })
        .await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "once".into()));
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_wake_that_does_not_end_is_waited_for_no_longer_than_the_hold_time() {
    let world = World::new("resume.hold_timeout = \"500ms\"\n").await;
    let gate = Gate::closed();
    world.sandbox.wakes([Step::Truly.after(&gate)]);
    let answer = world.meanwhile(async || drop(world.sandbox.paused("127.0.0.1").clone())).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (504, "hold_timeout".into()));
    world.thaw.open();
    gate.open();
    assert_eq!(world.post().await.status, 200);
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_sandbox_that_falls_asleep_again_and_again_is_not_woken_in_a_loop() {
    let world = World::new("").await;
    world.sandbox.wakes([Step::Briefly, Step::Briefly]);
    let answer = world.meanwhile(async || drop(world.sandbox.paused("127.0.0.1").clone())).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_client_that_leaves_meanwhile_takes_its_exchange_with_it() {
    let world = World::new("").await;
    let gate = Gate::closed();
    // One wake for all of them.
    world.sandbox.wakes([Step::Truly.after(&gate)]);
    let port = world.app.address.port();
    let mut asked = 0;
    within_a_second("the connection to the sandbox ends", async || {
        let mut client = Raw::connect(world.proxy.address).await;
        client.write(format!("GET / HTTP/1.1\r\nhost: {port}-abc.example.test\r\n\r\n")).await;
        asked += 1;
        eventually("the application has it", async || world.app.requests() == asked).await;
        world.sandbox.paused("127.0.0.1");
        world.sandbox.connects_become(1).await;
        let left = Instant::now();
        drop(client);
        world.proxy.is_idle_upstream_too().await;
        left.elapsed()
    })
    .await;
    gate.open();
    world.proxy.metric_becomes("client_proxy_wakes_total", 1.0).await;
}

#[tokio::test]
async fn the_time_for_an_answer_is_counted_from_the_wake() {
    let limit = Duration::from_millis(500);
    let world = World::new("upstream.response_header_timeout = \"500ms\"\n").await;
    let start = Instant::now();
    let answer = world.meanwhile(async || {}).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (504, "upstream_timeout".into()));
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    world.proxy.is_idle_upstream_too().await;

    let world = World::new("upstream.response_header_timeout = \"500ms\"\n").await;
    let (gate, thaw) = (Gate::closed(), world.thaw.clone());
    world.sandbox.wakes([Step::Truly.doing(move || thaw.open()).after(&gate)]);
    let answer = world
        .meanwhile(async || {
            let asked = Instant::now();
            world.sandbox.paused("127.0.0.1");
            world.sandbox.connects_become(1).await;
            // The wake alone takes longer than an answer may.
            tokio::time::sleep_until(asked + 2 * limit).await;
            gate.open();
        })
        .await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "once".into()));
    world.proxy.is_idle_upstream_too().await;

    // Nor does the time before the wake give the sandbox less after it.
    let world = World::new("upstream.response_header_timeout = \"500ms\"\n").await;
    let woken = std::sync::Arc::new(Mutex::new(start));
    let wakes = woken.clone();
    world.sandbox.wakes([Step::Truly.doing(move || *wakes.lock().expect("no panic") = Instant::now())]);
    let answer = world.meanwhile(async || drop(world.sandbox.paused("127.0.0.1").clone())).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (504, "upstream_timeout".into()));
    let after = woken.lock().expect("no panic").elapsed();
    assert!(after >= limit, "{after:?}");
    world.proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_sandbox_that_has_cut_an_upload_when_it_is_said_to_sleep_is_not_woken_for_it() {
    // An empty SETTINGS frame (RFC 9113 §6.5) is all that HTTP/2 needs before a request.
    for (protocol, hello) in [("http1", &b""[..]), ("h2c", b"\0\0\0\x04\0\0\0\0\0")] {
        an_upload_is_cut(protocol, hello).await;
    }
}

async fn an_upload_is_cut(protocol: &str, hello: &[u8]) {
    let control = ControlPlane::start().await;
    let more = format!("{DIRECT}upstream.protocol = \"{protocol}\"\ncache.ttl = \"20ms\"\n");
    let proxy = Proxy::start(&control.config(&more));
    let node = Node::start().await;
    let port = node.address.port();
    for round in 0..30 {
        let id = format!("abc{round}");
        let sandbox = control.sandbox(&id);
        sandbox.running("127.0.0.1");
        let mut client = Raw::connect(proxy.address).await;
        let head = format!("POST / HTTP/1.1\r\nhost: {port}-{id}.example.test\r\ncontent-length: 100\r\n\r\n");
        client.write(format!("{head}half")).await;
        let mut app = node.accept().await;
        app.write(hello).await;
        app.read_until("half").await;
        let (asleep, app) = (sandbox.clone(), Mutex::new(Some(app)));
        sandbox.always_looks_up(Step::Truly.doing(move || {
            if let Some(app) = app.lock().expect("no panic").take() {
                app.reset();
            }
            asleep.paused("127.0.0.1");
        }));
        let answer = client.head().await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{protocol} {round}: {answer}");
        assert_eq!(sandbox.connects(), 0, "{protocol} {round}");
    }
}

/// A process that can be frozen, this test's own binary; killed when dropped.
struct Process {
    child: Child,
    port: u16,
}

impl Process {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "frozen::a_process_that_counts_its_requests", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut ports = lines.map_while(Result::ok).filter_map(|line| line.split("port=").nth(1)?.trim().parse().ok());
        let port = ports.next().expect("a port");
        Self { child, port }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    async fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).expect("it lives");
        let stat = format!("/proc/{}/stat", self.child.id());
        eventually("it is frozen", async || {
            std::fs::read_to_string(&stat)
                .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
        })
        .await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "not a test: the process that the next one freezes"]
fn a_process_that_counts_its_requests() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("port={}", listener.local_addr().expect("an address").port());
    // Its parent's death ends it, too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    for (number, socket) in listener.incoming().enumerate() {
        let mut socket = BufReader::new(socket.expect("a connection"));
        let mut line = String::from("begin");
        while !line.trim().is_empty() {
            line.clear();
            socket.read_line(&mut line).expect("a head");
        }
        let text = format!("request {}", number + 1);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let _ = socket.get_mut().write_all(answer.as_bytes());
    }
}

#[tokio::test]
async fn a_request_into_a_stopped_process_is_answered_once_after_the_wake() {
    let process = Process::start();
    let control = ControlPlane::start().await;
    let proxy = Proxy::start(&control.config(&format!("{DIRECT}{IMPATIENT}")));
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    assert_eq!(proxy.get(process.port, "abc", "/").await.text(), "request 1");
    proxy.is_idle_upstream_too().await;
    for round in [2, 3] {
        process.freeze().await;
        let pid = process.pid();
        sandbox.wakes([Step::Truly.doing(move || kill_process(pid, Signal::CONT).expect("it lives"))]);
        let asleep = async {
            proxy.metric_becomes("client_proxy_upstream_connections", 1.0).await;
            sandbox.paused("127.0.0.1");
        };
        let (answer, ()) = tokio::join!(proxy.get(process.port, "abc", "/"), asleep);
        assert_eq!((answer.status.as_u16(), answer.text()), (200, format!("request {round}")));
        proxy.is_idle_upstream_too().await;
    }
    assert_eq!(sandbox.connects(), 2);
}
