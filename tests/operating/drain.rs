//! SIGTERM to the real program, with requests held and running.

use std::time::Duration;

use rustix::process::Signal;
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

use crate::support::{
    self, Answer, REMEMBER, Raw, Server,
    binary::Binary,
    control_plane::{ControlPlane, Gate, Step},
    count, crowd, eventually, get, nodes_at, request, send, try_send,
};

const HELD: &str = "client_proxy_held_requests";

/// Status, and whether the connection closes.
async fn ends(crowd: JoinSet<Answer>) -> Vec<(u16, String)> {
    crowd.join_all().await.iter().map(|one| (one.status.as_u16(), one.header("connection").to_owned())).collect()
}

/// Requests held for `asleep`, whose wake waits for `wake`, and requests that `busy` answers when `work` opens.
struct World {
    control: ControlPlane,
    node: Server,
    wake: Gate,
    work: Gate,
    proxy: Binary,
}

impl World {
    async fn new(more: &str) -> Self {
        support::many_descriptors();
        let control = ControlPlane::start().await;
        let (wake, work) = (Gate::closed(), Gate::closed());
        control.sandbox("asleep").paused("127.0.0.1");
        control.sandbox("busy").running("127.0.0.1");
        let node = Server::gated(&work).await;
        let config = format!("{}{REMEMBER}resume.max_held_per_sandbox = 5000\n{more}", nodes_at(node.address.port()));
        let proxy = Binary::start(&control.config(&config)).await;
        eventually("ready", async || get(proxy.health, "/healthz/ready").await.status == 200).await;
        Self { control, node, wake, work, proxy }
    }

    /// One wake, which waits for its gate.
    fn may_wake(&self) {
        self.control.sandbox("asleep").wakes([Step::Truly.after(&self.wake)]);
    }

    fn crowd(&self, sandbox: &str, path: &str, count: usize) -> JoinSet<Answer> {
        crowd(self.proxy.address, sandbox, path, count)
    }

    async fn under_way(&self, held: usize, running: usize) {
        self.control.sandbox("asleep").connects_become(1).await;
        eventually("they are held", async || count(self.proxy.health, HELD).await == held).await;
        eventually("they are running", async || self.node.requests() == running).await;
    }

    async fn is_draining(&self) {
        eventually("readiness fails", async || get(self.proxy.health, "/healthz/ready").await.status == 503).await;
    }
}

#[tokio::test]
async fn a_thousand_held_and_fifty_running_requests_are_answered() {
    let mut world = World::new("shutdown.drain_delay = \"2s\"\nshutdown.drain_timeout = \"60s\"\n").await;
    world.may_wake();
    let mut idle = Raw::connect(world.proxy.address).await;
    idle.write("GET /quick HTTP/1.1\r\nhost: 8000-busy.example.test\r\n\r\n").await;
    assert!(idle.read_until("hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let (held, running) = (world.crowd("asleep", "/", 1000), world.crowd("busy", "/slow", 50));
    world.under_way(1000, 51).await;

    let told = Instant::now();
    world.proxy.signal(Signal::TERM);
    world.is_draining().await;
    // Connections are still taken, and every answer says where things go.
    let answer = ends(world.crowd("busy", "/quick", 1)).await;
    assert_eq!(answer, [(200, "close".to_owned())]);
    idle.write("GET /quick HTTP/1.1\r\nhost: 8000-busy.example.test\r\n\r\n").await;
    let last = String::from_utf8(idle.rest().await.expect("a clean end")).expect("text");
    assert!(
        last.starts_with("HTTP/1.1 200 OK\r\n") && last.to_lowercase().contains("\r\nconnection: close\r\n"),
        "{last}"
    );
    let mut unused = Raw::connect(world.proxy.address).await;

    eventually("connections are refused", async || TcpStream::connect(world.proxy.address).await.is_err()).await;
    assert!(told.elapsed() >= Duration::from_secs(2), "{:?}", told.elapsed());
    assert_eq!(unused.rest().await.expect("a clean end"), b"", "idle connections close");
    assert_eq!(count(world.proxy.health, HELD).await, 1000, "and held ones do not");
    world.wake.open();
    world.work.open();
    for answer in ends(held).await.into_iter().chain(ends(running).await) {
        assert_eq!(answer, (200, "close".to_owned()));
    }
    assert_eq!(world.proxy.end().await.code(), Some(0));
    let stopped = world.proxy.line("stopped").expect("a last line");
    assert_eq!(stopped["everything_finished"], true);
    assert_eq!((world.node.requests(), world.control.sandbox("asleep").connects()), (1053, 1));
}

#[tokio::test]
async fn what_is_held_when_the_time_is_over_is_told() {
    let mut world = World::new("shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"500ms\"\n").await;
    world.may_wake();
    let waiting = async |sandbox: &str, path: &str| {
        let request = request("POST", 8000, sandbox, path).body("body".into()).expect("a request");
        send(world.proxy.address, request).await
    };
    let told = async {
        world.under_way(1, 1).await;
        let start = Instant::now();
        world.proxy.signal(Signal::TERM);
        start
    };
    let (held, running, told) = tokio::join!(waiting("asleep", "/"), waiting("busy", "/slow"), told);
    assert!(told.elapsed() >= Duration::from_millis(500), "{:?}", told.elapsed());
    for answer in [held, running] {
        assert_eq!((answer.status.as_u16(), answer.error()), (503, "draining".into()));
        assert_eq!((answer.header("connection"), answer.header("retry-after").is_empty()), ("close", false));
    }
    assert_eq!(world.proxy.end().await.code(), Some(0));
    assert_eq!(world.proxy.line("stopped").expect("a last line")["everything_finished"], false);
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut world = World::new("shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"1h\"\n").await;
        world.may_wake();
        let address = world.proxy.address;
        let held = tokio::spawn(async move {
            let request = request("GET", 8000, "asleep", "/").body(http_body_util::Full::default());
            try_send(address, request.expect("a request")).await
        });
        world.under_way(1, 0).await;
        world.proxy.signal(signal);
        world.is_draining().await;
        assert!(!held.is_finished());
        world.proxy.signal(Signal::TERM);
        assert_eq!(world.proxy.end().await.code(), Some(0));
        // Cut, or told so at the last moment.
        if let Ok(answer) = held.await.expect("no panic") {
            assert_eq!((answer.status.as_u16(), answer.error()), (503, "draining".into()));
        }
    }
}

#[tokio::test]
async fn an_idle_proxy_ends_without_waiting_for_its_connections() {
    let mut world = World::new("shutdown.drain_delay = \"0s\"\n").await;
    let mut idle = Raw::connect(world.proxy.address).await;
    idle.write("GET /quick HTTP/1.1\r\nhost: 8000-busy.example.test\r\n\r\n").await;
    idle.read_until("hello").await;
    world.proxy.signal(Signal::INT);
    assert_eq!(idle.rest().await.expect("a clean end"), b"");
    assert_eq!(world.proxy.end().await.code(), Some(0));
}
