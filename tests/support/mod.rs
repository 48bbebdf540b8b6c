//! What end-to-end tests share: a proxy on free ports, servers that do as they are told, a client.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "and each is a crate of its own")]
#![allow(clippy::unused_async, reason = "what starts tasks must be called in a runtime")]
#![allow(clippy::float_cmp, reason = "metrics are whole numbers here")]

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use client_proxy::{
    app::App,
    config::{Config, Environment},
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{Instant, timeout},
};

pub mod binary;
pub mod collector;
pub mod control_plane;
pub mod grpc_api;
pub mod http2;
pub mod http2_node;
pub mod kinds;
mod server;
pub mod wire;
mod world;

pub use server::{Server, answer, json};
pub use wire::Raw;
pub use world::{World, crowd, statuses, view_becomes};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A proxy of this process, on free ports.
pub struct Proxy {
    pub app: App,
    pub address: SocketAddr,
    pub health: SocketAddr,
    pub admin: SocketAddr,
    /// The test has not said how it ends: at its end nothing is waited for.
    drains_by_itself: bool,
}

impl Proxy {
    /// Starts with this configuration; its listeners are free loopback ports, whatever it says.
    pub fn start(toml: &str) -> Self {
        let anywhere = "127.0.0.1:0";
        let drains_by_itself = !toml.parse::<toml::Table>().expect("TOML").contains_key("shutdown");
        let at_once = ["DELAY", "TIMEOUT"].map(|time| (format!("CLIENT_PROXY__SHUTDOWN__DRAIN_{time}"), "0s"));
        let at_once = at_once.iter().filter(|_| drains_by_itself).map(|(name, value)| (&**name, *value));
        let environment: Environment = [
            ("CLIENT_PROXY__SERVER__LISTEN", &*format!("[\"{anywhere}\"]")),
            ("CLIENT_PROXY__HEALTH__LISTEN", anywhere),
            ("CLIENT_PROXY__ADMIN__LISTEN", anywhere),
        ]
        .into_iter()
        .chain(at_once)
        .collect();
        let toml = kinds::lines(toml) + toml;
        let loaded = Config::load(toml.as_bytes(), &environment).unwrap_or_else(|faults| panic!("{faults}"));
        let app = App::start(loaded, None).expect("a proxy");
        let addresses = app.addresses().clone();
        Self {
            app,
            address: addresses.proxy[0],
            health: addresses.health,
            admin: addresses.admin.expect("an admin listener"),
            drains_by_itself,
        }
    }

    /// `GET path` for the sandbox's port.
    pub async fn get(&self, port: u16, sandbox: &str, path: &str) -> Answer {
        self.send(request("GET", port, sandbox, path).body(Full::default()).expect("a request")).await
    }

    /// Sends the request on a connection of its own.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        send(self.address, request).await
    }

    /// The sum of all samples whose line begins with `name` (labels may follow), 0 if there is none.
    pub async fn metric(&self, name: &str) -> f64 {
        metric(self.health, name).await
    }

    /// The same of what is counted in whole numbers and never below nothing.
    pub async fn count(&self, name: &str) -> usize {
        count(self.health, name).await
    }

    /// Waits until the metric has this value.
    #[allow(clippy::float_cmp, reason = "what is waited for is a whole number")]
    pub async fn metric_becomes(&self, name: &str, value: f64) {
        eventually(&format!("{name} = {value}"), async || self.metric(name).await == value).await;
    }

    /// Waits until nothing is held, connected or under way.
    pub async fn is_idle(&self) {
        for gauge in ["client_proxy_held_requests", "client_proxy_connections", "client_proxy_tunnels"] {
            self.metric_becomes(gauge, 0.0).await;
        }
    }

    /// The same where no connection to a sandbox is pooled: none may be left.
    pub async fn is_idle_upstream_too(&self) {
        self.is_idle().await;
        self.metric_becomes("client_proxy_upstream_connections", 0.0).await;
    }
}

impl Drop for Proxy {
    /// Whatever a test did: when its proxy has ended what was under way, every gauge is back at 0.
    fn drop(&mut self) {
        if self.drains_by_itself && !std::thread::panicking() {
            let (app, health) = (&self.app, self.health);
            // The test's own runtime waits here, and may be what the proxy's connections lead to.
            let left = std::thread::scope(|scope| scope.spawn(|| gauges_after(app, health)).join());
            left.expect("every gauge at 0 at the end");
        }
    }
}

fn gauges_after(app: &App, health: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connections = "client_proxy_connections";
        let held = "client_proxy_held_requests";
        let is_zero = async |name| eventually(name, async || metric(health, name).await == 0.0).await;
        let nothing_is_open = metric(health, connections).await == 0.0;
        if nothing_is_open {
            // No drain is needed to end what was held.
            is_zero(held).await;
        }
        // A worker with connections looks every few seconds only whether it can end, and its pool with it.
        let upstream = nothing_is_open.then_some("client_proxy_upstream_connections");
        app.drain().await;
        for gauge in [held, connections, "client_proxy_tunnels"].into_iter().chain(upstream) {
            is_zero(gauge).await;
        }
    });
}

/// The configuration of nodes that listen on this port.
pub fn nodes_at(port: u16) -> String {
    format!("upstream.address = \"{{node}}:{port}\"\n")
}

/// The configuration of sandboxes on loopback addresses of this machine.
pub const DIRECT: &str = "upstream.mode = \"direct\"\nupstream.allow_loopback = true\n";

/// Nothing that is known gets too old during a test.
pub const REMEMBER: &str = "cache.ttl = \"60s\"\ncache.negative_ttl = \"60s\"\n";

/// Raises the limit on open files as far as this process may: a crowd has three for each of its requests.
pub fn many_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).expect("one's own limit");
}

/// A request in the usual form; finish it with `.body()`.
pub fn request(method: &str, port: u16, sandbox: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("host", format!("{port}-{sandbox}.example.test"))
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The code of an answer that the proxy itself made.
    pub fn error(&self) -> String {
        let value = |value: &http::HeaderValue| value.to_str().expect("ASCII").to_owned();
        let all = |name: &str| self.headers.get_all(name).iter().map(value).collect::<Vec<_>>().join(", ");
        own_error(self.status.as_u16(), all, &self.body)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("ASCII"))
    }
}

/// The code of an answer that the proxy made itself, after checking what all of those have in common. `field`
/// is all values of the header fields of one name.
fn own_error(status: u16, field: impl Fn(&str) -> String, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{status}, {error}: {text}"));
    let code = json["error"].as_str().expect("a code").to_owned();
    assert_eq!(json["code"].as_u64(), Some(status.into()), "an integer, the status: {text}");
    assert!(json["message"].as_str().is_some_and(|message| !message.is_empty()), "{text}");
    assert_eq!(field("content-type"), "application/json; charset=utf-8");
    assert_eq!(field("cache-control"), "no-store");
    let told = field("proxy-status");
    assert!(told.starts_with("client-proxy; error="), "{told}");
    let details = format!("; details=\"{code}");
    assert!(told.ends_with(&format!("{details}\"")) || told.contains(&format!("{details}; ")), "{told}");
    assert!(!field("x-request-id").is_empty());
    assert_eq!(json["requestId"], field("x-request-id"));
    assert_eq!(json["retryable"].as_bool(), Some(!field("retry-after").is_empty()), "{text}");
    assert!(!field("date").is_empty(), "{text}");
    assert_eq!(field("content-length"), body.len().to_string());
    code
}

/// As [`Proxy::metric`], of the proxy with this health listener.
pub async fn metric(health: SocketAddr, name: &str) -> f64 {
    samples(health, name).await.iter().filter_map(|sample| sample.parse::<f64>().ok()).sum()
}

/// As [`Proxy::count`], of the proxy with this health listener.
pub async fn count(health: SocketAddr, name: &str) -> usize {
    let samples = samples(health, name).await;
    samples.iter().map(|sample| sample.parse::<usize>().unwrap_or_else(|_| panic!("{name} is {sample}"))).sum()
}

async fn samples(health: SocketAddr, name: &str) -> Vec<String> {
    let text = get(health, "/metrics").await.text();
    let lines = text.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ', ',']) || name.contains('{'))
    });
    lines.filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect()
}

/// `GET path` from `address`.
pub async fn get(address: SocketAddr, path: &str) -> Answer {
    let request = Request::get(path).header("host", address.to_string()).body(Full::default()).expect("a request");
    send(address, request).await
}

/// Sends on a connection of its own, and reads the answer to its end.
pub async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    try_send(address, request).await.unwrap_or_else(|error| panic!("no answer: {error}"))
}

/// The same where it may fail.
pub async fn try_send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
    let exchange = async {
        let socket = TcpStream::connect(address).await.expect("a connection");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let driver = tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        driver.abort();
        Ok(Answer { status: head.status, headers: head.headers, body })
    };
    timeout(PATIENCE, exchange).await.expect("an answer in time")
}

/// Waits until the condition holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What is promised within a second of a client's leaving comes then: at the best of three tries, as the
/// machine may be busy with something else. A try tells how long it took.
pub async fn within_a_second(what: &str, mut attempt: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    while took.iter().all(|time| *time >= Duration::from_secs(1)) {
        assert!(took.len() < 3, "{what}: {took:?}");
        took.push(attempt().await);
    }
}

/// Waits until what is counted has begun to grow and goes on no more, because every buffer on its way is full.
pub async fn stands_still(count: impl Fn() -> u64) {
    let (mut before, mut since) = (0, Instant::now());
    eventually("it stands still", async || {
        let now = count();
        if now != before {
            (before, since) = (now, Instant::now());
        }
        now > 0 && since.elapsed() > Duration::from_millis(300)
    })
    .await;
}

/// Listens where a crowd may come at once: beyond the usual backlog of 128 the kernel drops SYNs, and connecting
/// takes seconds.
pub fn listen(address: &str) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a socket");
    socket.bind(address.parse().expect("an address")).expect("a free port");
    socket.listen(4096).expect("a listener")
}

/// A loopback address that no other test uses, in this process or another: what listened there may stop
/// listening, and nobody else takes the port meanwhile.
pub fn own_ip() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let (process, n) = (std::process::id(), NEXT.fetch_add(1, SeqCst));
    format!("127.{}.{}.{}", 64 + process / 250 % 128, 1 + process % 250, 1 + n % 250)
}

/// A port of this address on which nobody listens.
pub fn free_port(ip: &str) -> u16 {
    std::net::TcpListener::bind((ip, 0)).expect("a free port").local_addr().expect("an address").port()
}
