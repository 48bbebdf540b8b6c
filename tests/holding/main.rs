//! Many clients wait for many sandboxes: how many each may have waiting, whose wake is next, who is let through
//! when, and that nobody is forgotten.

mod bounds;
mod left;
mod lives;
mod neighbours;
mod release;
#[path = "../support/mod.rs"]
mod support;
mod turns;

use std::{future::Future, net::SocketAddr};

use http_body_util::Full;
use support::{Answer, Proxy, REMEMBER, Raw, World, request, send, statuses, view_becomes};
use tokio::task::JoinSet;

const HELD: &str = "client_proxy_held_requests";

/// Two clients, as the balancer in front tells.
const ONE: &str = "10.1.2.3";
const OTHER: &str = "10.9.8.7";

/// Everybody here is a balancer, and is believed who its client is.
const BALANCERS: &str = "log.access = \"off\"\nserver.trusted_proxies = [\"127.0.0.0/8\"]\n";

async fn world(more: &str) -> World {
    support::many_descriptors();
    World::new(&format!("{BALANCERS}{REMEMBER}{more}")).await
}

/// `GET /` of the sandbox for this client, on a connection of its own.
fn ask(proxy: SocketAddr, client: &str, sandbox: &str) -> impl Future<Output = Answer> + Send + use<> {
    let request = request("GET", 8000, sandbox, "/").header("x-forwarded-for", client);
    send(proxy, request.body(Full::default()).expect("a request"))
}

/// The same for each of these sandboxes, under way.
fn asks<S: AsRef<str>>(proxy: SocketAddr, client: &str, sandboxes: impl IntoIterator<Item = S>) -> JoinSet<Answer> {
    sandboxes.into_iter().map(|sandbox| ask(proxy, client, sandbox.as_ref())).collect()
}

/// The same as one can leave it: its answer is not waited for.
async fn begin(proxy: SocketAddr, client: &str, sandbox: &str) -> Raw {
    let mut raw = Raw::connect(proxy).await;
    let host = format!("8000-{sandbox}.example.test");
    raw.write(format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {client}\r\n\r\n")).await;
    raw
}

fn is_too_many(answer: &Answer) {
    assert_eq!((answer.status.as_u16(), &*answer.error()), (503, "too_many_held"));
    assert!(!answer.header("retry-after").is_empty());
}

/// The gauge counts a moment before a request has its place: the sandbox itself must say so.
async fn holds(proxy: &Proxy, sandbox: &str, held: usize) {
    view_becomes(proxy.admin, sandbox, |view| view["held"] == held).await;
}

/// Its lookup is over: the wake is under way, or waits for its turn.
async fn is_being_woken(proxy: &Proxy, sandbox: &str) {
    view_becomes(proxy.admin, sandbox, |view| view["state"] == "resuming").await;
}
