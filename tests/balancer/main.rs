//! A rolling restart behind a real load balancer: two proxies, `HAProxy` in front of them, traffic all the while.
//! Needs the program `haproxy`.

#[path = "../support/mod.rs"]
mod support;

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use support::{
    PATIENCE, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, Gate, Step},
    count, eventually, free_port, get, nodes_at, own_ip, request, try_send,
};
use tempfile::NamedTempFile;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Clients that send one request after another on a connection that they keep.
const CLIENTS: usize = 12;
/// Between an answer and the next request of a client.
const PAUSE: Duration = Duration::from_millis(5);
/// Between two requests that find their sandbox asleep, and how long its wake takes.
const SLEEPERS: Duration = Duration::from_millis(100);
const WAKE: Duration = Duration::from_millis(1500);
/// A request, held or not, through everything.
const LIMIT: Duration = Duration::from_secs(8);

/// One of the two, where it always is.
struct Instance {
    name: char,
    proxy: SocketAddr,
    health: SocketAddr,
    config: String,
    running: Option<Binary>,
}

impl Instance {
    fn new(name: char, config: &str) -> Self {
        let ip = own_ip();
        let address = || SocketAddr::new(ip.parse().expect("an address"), free_port(&ip));
        Self { name, proxy: address(), health: address(), config: config.to_owned(), running: None }
    }

    async fn start(&mut self) {
        let (proxy, health) = (format!("[\"{}\"]", self.proxy), self.health.to_string());
        let places = [("CLIENT_PROXY__SERVER__LISTEN", &*proxy), ("CLIENT_PROXY__HEALTH__LISTEN", &*health)];
        self.running = Some(Binary::start_in(&self.config, &places).await);
        eventually("ready", async || get(self.health, "/healthz/ready").await.status == 200).await;
    }

    /// Ends it while it holds requests, starts it again, and returns when it is in use again.
    async fn restart(&mut self) {
        let held = async || count(self.health, "client_proxy_held_requests").await;
        eventually("it holds some", async || held().await > 2).await;
        let mut former = self.running.take().expect("it runs");
        former.signal(Signal::TERM);
        // The wait is bounded.
        assert_eq!(former.end().await.code(), Some(0), "{}", former.stderr());
        let stopped = former.line("stopped").expect("a last line");
        assert_eq!(stopped["everything_finished"], true, "{}", self.name);
        self.start().await;
        self.is_in_use().await;
    }

    async fn is_in_use(&self) {
        let served = async || count(self.health, "client_proxy_requests_total").await;
        eventually(&format!("{} serves", self.name), async || served().await > 200).await;
    }
}

/// `HAProxy`, ended when dropped.
struct Balancer {
    child: Child,
    address: SocketAddr,
    _config: NamedTempFile,
}

impl Balancer {
    /// `retries 0` and no redispatch: otherwise it would send a request that failed at one proxy to the other, and
    /// nobody would see that it failed. Its checks ask what a deployment should ask, the readiness.
    async fn start(instances: &[Instance]) -> Self {
        let ip = own_ip();
        let address = SocketAddr::new(ip.parse().expect("an address"), free_port(&ip));
        let line = |one: &Instance| {
            let health = one.health;
            format!("    server {} {} addr {} port {}", one.name, one.proxy, health.ip(), health.port())
        };
        let servers = instances.iter().map(line).collect::<Vec<_>>().join("\n");
        let text = format!(
            "global\n    maxconn 2000\n\
             defaults\n    mode http\n    timeout connect 2s\n    timeout client 30s\n\
             \x20   timeout server 30s\n    retries 0\n\
             frontend edge\n    bind {address}\n    stats enable\n\
             \x20   stats uri /balancer\n    default_backend proxies\n\
             backend proxies\n    balance roundrobin\n    option httpchk GET /healthz/ready\n\
             \x20   default-server check inter 100ms fall 2 rise 1\n{servers}\n"
        );
        let config = NamedTempFile::new().expect("a file");
        std::fs::write(config.path(), text).expect("a file that takes it");
        let child = Command::new("haproxy")
            .args(["-db", "-q", "-f"])
            .arg(config.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program haproxy");
        eventually("it listens", async || TcpStream::connect(address).await.is_ok()).await;
        Self { child, address, _config: config }
    }

    /// The sum of one of its statistics over the proxies and their backend.
    async fn statistic(&self, name: &str) -> usize {
        let text = get(self.address, "/balancer;csv").await.text();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let names = lines.next().expect("a line of names");
        let at = names.iter().position(|is| *is == name).unwrap_or_else(|| panic!("no {name}: {names:?}"));
        lines.filter(|line| line[0] == "proxies").map(|line| line[at].parse().unwrap_or(0)).sum()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of the traffic.
#[derive(Default)]
struct Traffic {
    over: AtomicBool,
    answered: AtomicUsize,
    held: AtomicUsize,
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = handshake(TokioIo::new(socket)).await.expect("a connection");
    tokio::spawn(connection);
    sender
}

/// Sends one request after another on one connection, half of them of a kind that nobody repeats.
async fn keep_asking(balancer: SocketAddr, number: usize, traffic: Arc<Traffic>) {
    let mut sender = connect(balancer).await;
    let mut methods = ["GET", "POST"].iter().cycle();
    while !traffic.over.load(SeqCst) {
        let method = methods.next().expect("endless");
        let request = request(method, 8000, &format!("awake{number}"), "/").body(Full::from("body"));
        let exchange = async {
            let answer = sender.send_request(request.expect("a request")).await?;
            let status = answer.status();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        };
        let (status, body) = timeout(LIMIT, exchange).await.expect("an answer in time").expect("an answer");
        assert_eq!((status.as_u16(), &body[..]), (200, &b"hello"[..]));
        traffic.answered.fetch_add(1, SeqCst);
        sleep(PAUSE).await;
    }
}

/// Asks for one sleeping sandbox after another, none of them twice, without waiting for the answers.
async fn keep_waking(balancer: SocketAddr, control: Arc<ControlPlane>, traffic: Arc<Traffic>) {
    let mut waiting = JoinSet::new();
    for number in 0.. {
        if traffic.over.load(SeqCst) {
            break;
        }
        let (id, gate) = (format!("asleep{number}"), Gate::closed());
        control.sandbox(&id).paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let traffic = traffic.clone();
        waiting.spawn(async move {
            let request = request("POST", 8000, &id, "/").body("body".into()).expect("a request");
            let (answer, ()) = tokio::join!(try_send(balancer, request), async {
                sleep(WAKE).await;
                gate.open();
            });
            let answer = answer.expect("an answer");
            assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
            assert!(!answer.header("server-timing").is_empty(), "it was held");
            traffic.held.fetch_add(1, SeqCst);
        });
        sleep(SLEEPERS).await;
    }
    waiting.join_all().await;
}

#[tokio::test]
async fn a_rolling_restart_loses_no_request() {
    support::many_descriptors();
    let control = Arc::new(ControlPlane::start().await);
    let node = Server::start(async |_| answer(200, "hello")).await;
    for number in 0..CLIENTS {
        control.sandbox(&format!("awake{number}")).running("127.0.0.1");
    }
    // The delay is several checks long: the balancer knows before connections are refused.
    let config = control.config(&format!(
        "{}shutdown.drain_delay = \"2s\"\nshutdown.drain_timeout = \"8s\"\nlog.access = \"errors\"\n",
        nodes_at(node.address.port())
    ));
    let mut instances = ['a', 'b'].map(|name| Instance::new(name, &config));
    for one in &mut instances {
        one.start().await;
    }
    let balancer = Balancer::start(&instances).await;
    let traffic = Arc::<Traffic>::default();
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        tasks.spawn(keep_asking(balancer.address, number, traffic.clone()));
    }
    tasks.spawn(keep_waking(balancer.address, control.clone(), traffic.clone()));
    for one in &instances {
        one.is_in_use().await;
    }
    for one in &mut instances {
        tokio::select! {
            () = one.restart() => {}
            // A client ends early only by failing.
            ended = tasks.join_next() => ended.expect("clients").expect("no failed request"),
        }
    }
    traffic.over.store(true, SeqCst);
    timeout(PATIENCE, tasks.join_all()).await.expect("the last answers in time");
    let (answered, held) = (traffic.answered.load(SeqCst), traffic.held.load(SeqCst));
    assert!(answered > 2000 && held > 20, "{answered} answered, {held} of them held");
    for hidden in ["wretr", "wredis", "econ", "eresp"] {
        assert_eq!(balancer.statistic(hidden).await, 0, "{hidden}");
    }
    assert!(balancer.statistic("chkfail").await > 0, "it noticed that there was a restart");
}
