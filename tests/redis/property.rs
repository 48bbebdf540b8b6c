//! Two proxies, one Redis, and somebody who moves, deletes and writes records at random while clients ask: each answer
//! comes from a node that the catalog named shortly before the request or since.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Nodes, pushes,
    server::{Redis, key, record},
    support::{Proxy, http2::Http2},
};

const SANDBOXES: usize = 20;
const REQUESTS: usize = 24_000;
/// How long before a request what the catalog named may still be answered, by a process that gets the time it needs.
const GRACE: Duration = Duration::from_millis(50);
const NODES: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// What the catalog said of one sandbox, and when that was written: from before the command until after its answer.
/// `None`: there was no record.
#[derive(Default)]
struct Past(Vec<(Instant, Instant, Option<&'static str>)>);

impl Past {
    /// Whether it said so at some moment between the two.
    fn named(&self, node: Option<&str>, from: Instant, to: Instant) -> bool {
        self.0.iter().enumerate().any(|(at, (began, _, said))| {
            let ended = self.0.get(at + 1).map(|(_, done, _)| *done);
            *said == node && *began <= to && ended.is_none_or(|ended| ended >= from)
        })
    }
}

/// The longest that a thread of this process, which sleeps for a millisecond each time, was not woken. Others work on
/// this machine, too: so late may any other thread be, the proxies' as well.
fn longest_stall(over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Relaxed) {
        let began = Instant::now();
        std::thread::park_timeout(Duration::from_millis(1));
        longest = longest.max(began.elapsed());
    }
    longest
}

type Pasts = Arc<Vec<Mutex<Past>>>;

/// An answer, and when it was asked for and there.
#[derive(Debug)]
struct Late {
    sandbox: usize,
    told: String,
    began: Instant,
    ended: Instant,
}

impl Late {
    /// Whether the catalog said otherwise all the time, from so long before on.
    fn is_wrong(&self, pasts: &Pasts, grace: Duration) -> bool {
        let node = (self.told != "502 sandbox_not_found").then_some(&*self.told);
        let from = self.began.checked_sub(grace).expect("later than the first");
        !pasts[self.sandbox].lock().expect("no panic").named(node, from, self.ended)
    }
}

async fn write(mut redis: MultiplexedConnection, pasts: Pasts, over: Arc<AtomicBool>) -> usize {
    let mut writes = 0;
    while !over.load(Relaxed) {
        let (sandbox, choice) = (fastrand::usize(..SANDBOXES), fastrand::usize(..5));
        let (id, node) = (format!("s{sandbox}"), NODES.get(choice).copied());
        let mut command = redis::cmd(if node.is_some() { "SET" } else { "DEL" });
        command.arg(key(&id));
        if let Some(node) = node {
            command.arg(record(node, &writes.to_string()));
        }
        let began = Instant::now();
        // Before it is sent: an answer may overtake the writer.
        pasts[sandbox].lock().expect("no panic").0.push((began, began + Duration::from_mins(1), node));
        command.query_async::<()>(&mut redis).await.expect("written");
        pasts[sandbox].lock().expect("no panic").0.last_mut().expect("just put").1 = Instant::now();
        writes += 1;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..3000))).await;
    }
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_comes_from_a_node_that_the_catalog_has_not_named_lately() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let lines = "resume.kind = \"none\"\ncache.ttl_with_push = \"1h\"\nlog.access = \"off\"";
    let proxies = [0, 1].map(|_| Proxy::start(&redis.config(nodes.port, lines)));
    for proxy in &proxies {
        pushes(proxy, true).await;
    }
    let began = Instant::now();
    let empty = || Mutex::new(Past(vec![(began, began, None)]));
    let pasts: Pasts = Arc::new((0..SANDBOXES).map(|_| empty()).collect());
    let over = Arc::new(AtomicBool::new(false));
    let changer = tokio::spawn(write(redis.connect().await.expect("a connection"), pasts.clone(), over.clone()));
    let stall = std::thread::spawn({
        let over = over.clone();
        move || longest_stall(&over)
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for n in 0..16 {
        let client = Http2::connect(proxies[n % 2].address).await;
        let (pasts, asked) = (pasts.clone(), asked.clone());
        clients.spawn(async move {
            let (mut wrong, mut seen) = (Vec::new(), HashMap::<String, usize>::new());
            while asked.fetch_add(1, Relaxed) < REQUESTS {
                let sandbox = fastrand::usize(..SANDBOXES);
                let began = Instant::now();
                let answer = client.get(&format!("s{sandbox}"), "/").await;
                let ended = Instant::now();
                let told = super::told(&answer);
                *seen.entry(told.clone()).or_default() += 1;
                let late = Late { sandbox, told, began, ended };
                if late.is_wrong(&pasts, GRACE) {
                    wrong.push(late);
                }
            }
            (wrong, seen)
        });
    }
    let (mut wrong, mut seen) = (Vec::new(), HashMap::<String, usize>::new());
    while let Some(done) = clients.join_next().await {
        let (more, counts) = done.expect("no panic");
        wrong.extend(more);
        for (what, count) in counts {
            *seen.entry(what).or_default() += count;
        }
    }
    over.store(true, Relaxed);
    let (writes, stall) = (changer.await.expect("no panic"), stall.join().expect("no panic"));
    println!("{REQUESTS} requests, {writes} changes, a stall of {stall:?}: {seen:?}");
    // A push passes two threads: that of the connection to Redis, and the worker that has to let it run.
    wrong.retain(|late| late.is_wrong(&pasts, GRACE + 2 * stall));
    assert!(wrong.is_empty(), "{} of {REQUESTS}, {stall:?}: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    // It was no quiet time, and nobody but the four answered.
    assert!(writes > 500, "{writes}");
    let known = |what: &String| what == "502 sandbox_not_found" || NODES.contains(&what.as_str());
    assert!(seen.len() == 4 && seen.keys().all(known), "{seen:?}");
}
