//! Crowds of thousands: what they cost in memory, and what they do to an application that is not ready for them.
//! Takes a minute.

mod backlog;
mod memory;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use support::{
    binary::Binary,
    count, eventually,
    http2::{Http2, full, request},
};
use tokio::{sync::Mutex, task::JoinSet, time::timeout};

/// Each test has the machine for itself: they count what the whole process, or the whole system, did.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Nobody of a crowd waits longer for an answer.
const PATIENCE: Duration = Duration::from_mins(3);

/// What all have in common: none is told of, and the time does not end.
const LONG: &str = "log.access = \"off\"\nresume.hold_timeout = \"5m\"\nresume.call_timeout = \"5m\"\n";

/// The statuses of a crowd's answers, which come by and by.
type Crowd = JoinSet<u16>;

/// Streams of one connection.
const STREAMS: usize = 100;

/// Asks on a connection of its own with [`STREAMS`] streams; `host` is without the port.
async fn join(crowd: &mut Crowd, proxy: &Binary, port: u16, sandbox: &str) {
    let client = Http2::connect(proxy.address).await;
    for _ in 0..STREAMS {
        let mut asked = request("GET", sandbox, "/", full(""));
        *asked.uri_mut() = format!("http://{port}-{sandbox}.example.test/").parse().expect("a URI");
        let mut sender = client.sender.clone();
        sender.ready().await.expect("a connection");
        crowd.spawn(answered(sender.send_request(asked)));
    }
}

async fn answered(answer: impl Future<Output = Result<http::Response<hyper::body::Incoming>, hyper::Error>>) -> u16 {
    timeout(PATIENCE, answer).await.expect("an answer in time").expect("an answer").status().as_u16()
}

/// Waits until so many are held.
async fn holds(proxy: &Binary, held: usize) {
    let name = "client_proxy_held_requests";
    eventually(&format!("{held} are held"), async || count(proxy.health, name).await == held).await;
}

/// All were answered well.
fn all_well(statuses: &[u16]) {
    let others: Vec<_> = statuses.iter().filter(|status| **status != 200).collect();
    assert!(others.is_empty(), "{} of {} answers: {others:?}", others.len(), statuses.len());
}
