//! A real Redis as catalog, and E2B's API as waker: what is known, what changes, and what fails.

mod changes;
mod cluster;
mod drop_in;
mod grpc_api;
mod healing;
mod outages;
mod property;
mod records;
#[path = "../support/redis.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;
#[allow(dead_code, unreachable_pub, reason = "as in support")]
#[path = "../support/tls.rs"]
mod tls;
mod waking;

use std::time::Duration;

use tokio::time::Instant;

use support::{Answer, Proxy, Server, answer};

/// Nodes on 127.0.0.1, .2 and .3, all on one port, that say who they are.
pub(crate) struct Nodes {
    pub(crate) port: u16,
    _all: Vec<Server>,
}

impl Nodes {
    pub(crate) async fn start() -> Self {
        let says =
            |name: &'static str| move |_: http::Request<hyper::body::Incoming>| std::future::ready(answer(200, name));
        let first = Server::start(says("127.0.0.1")).await;
        let port = first.address.port();
        let on = |name: &'static str| Server::on(&format!("{name}:{port}"), says(name));
        Self { port, _all: vec![first, on("127.0.0.2"), on("127.0.0.3")] }
    }
}

/// Who answers for the sandbox; or the status and code of the refusal.
pub(crate) async fn who(proxy: &Proxy, sandbox: &str) -> String {
    told(&proxy.get(8000, sandbox, "/").await)
}

pub(crate) fn told(answer: &Answer) -> String {
    match answer.status.as_u16() {
        200 => answer.text(),
        status => format!("{status} {}", answer.error()),
    }
}

/// Waits until this answers for the sandbox; tells how long that took.
pub(crate) async fn becomes(proxy: &Proxy, sandbox: &str, want: &str) -> Duration {
    let began = Instant::now();
    support::eventually(&format!("{sandbox} is answered for by {want}"), async || who(proxy, sandbox).await == want)
        .await;
    began.elapsed()
}

pub(crate) async fn pushes(proxy: &Proxy, are: bool) {
    proxy.metric_becomes("client_proxy_catalog_push_up", f64::from(u8::from(are))).await;
}
