//! Those who are held cost nobody else anything: as many of the others' requests are answered as without them, and
//! each takes the proxy as much work.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::support::{
    Raw, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, Gate, Sandbox, Step},
    count, eventually,
    http2::{Http2, full, request},
    nodes_at,
};

const CROWD: usize = 2000;
const STREAMS: usize = 100;

/// Connections of either version, and how often each asks for a sandbox that runs.
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 100;
/// Sandboxes that have to be looked for, and as many that have to be woken.
const STRANGERS: usize = 100;

/// What the control plane does not answer for the crowd's sandbox.
#[derive(Clone, Copy, Debug)]
enum Hanging {
    Lookup,
    Wake,
}

const BOTH: [Hanging; 2] = [Hanging::Lookup, Hanging::Wake];

struct Stage {
    control: ControlPlane,
    node: Server,
    proxy: Binary,
}

impl Stage {
    /// The proxy is a process of its own: what it works is not what the test does.
    async fn new() -> Self {
        let (control, node) = (ControlPlane::start().await, Server::start(async |_| answer(200, "hello")).await);
        let lines = "log.access = \"off\"\ncache.ttl = \"10m\"\ncatalog.rest.timeout = \"5m\"\n\
                     resume.hold_timeout = \"5m\"\nresume.call_timeout = \"5m\"\n";
        let lines = format!("{lines}{}", nodes_at(node.address.port()));
        let proxy = Binary::start(&control.config(&lines)).await;
        control.sandbox("running").running("127.0.0.1");
        let stage = Self { control, node, proxy };
        assert_eq!(one_by_one(&stage, "running", 1).await, 1);
        stage
    }

    async fn held_become(&self, held: usize) {
        let name = "client_proxy_held_requests";
        eventually(&format!("{held} are held"), async || count(self.proxy.health, name).await == held).await;
    }
}

/// Two thousand that wait until they are let go.
struct Crowd {
    sandbox: Sandbox,
    gate: Gate,
    waiting: JoinSet<u16>,
}

impl Crowd {
    async fn gather(stage: &Stage, id: &str, hanging: Hanging) -> Self {
        let (sandbox, gate) = (stage.control.sandbox(id), Gate::closed());
        let (lookup, wake) = match hanging {
            Hanging::Lookup => (Step::Truly.after(&gate), Step::Truly),
            Hanging::Wake => (Step::Truly, Step::Truly.after(&gate)),
        };
        sandbox.paused("127.0.0.1").looks_up([lookup]).wakes([wake]);
        let mut waiting = JoinSet::new();
        for _ in 0..CROWD / STREAMS {
            let client = Http2::connect(stage.proxy.address).await;
            for _ in 0..STREAMS {
                let mut sender = client.sender.clone();
                sender.ready().await.expect("a connection");
                let asked = sender.send_request(request("GET", id, "/", full("")));
                waiting.spawn(async { asked.await.expect("an answer").status().as_u16() });
            }
        }
        stage.held_become(CROWD).await;
        Self { sandbox, gate, waiting }
    }

    /// All are still there, and are answered now.
    async fn let_go(mut self, stage: &Stage) {
        stage.held_become(CROWD).await;
        assert!(self.waiting.try_join_next().is_none(), "none was answered before");
        self.gate.open();
        assert_eq!(self.waiting.join_all().await, [200; CROWD]);
        assert_eq!((self.sandbox.lookups(), self.sandbox.connects()), (1, 1));
        eventually("all have left", async || count(stage.proxy.health, "client_proxy_connections").await == 0).await;
    }
}

/// Asks so often on one connection of HTTP/1.1; how many are answered as they should be.
async fn one_by_one(stage: &Stage, sandbox: &str, requests: usize) -> usize {
    let (mut client, mut well) = (Raw::connect(stage.proxy.address).await, 0);
    for _ in 0..requests {
        client.write(format!("GET / HTTP/1.1\r\nHost: 8000-{sandbox}.example.test\r\n\r\n")).await;
        let message = client.message().await;
        well += usize::from((message.head.status(), &*message.text()) == (200, "hello"));
    }
    well
}

/// The same on one of HTTP/2, all at once.
async fn at_once(stage: &Stage, sandbox: &str, requests: usize) -> usize {
    let client = Http2::connect(stage.proxy.address).await;
    let answers = join_all((0..requests).map(|_| client.get(sandbox, "/"))).await;
    answers.iter().filter(|answer| (answer.status.as_u16(), &*answer.text()) == (200, "hello")).count()
}

/// What came of what others asked: of sandboxes that run, that had to be looked for, that had to be woken; how many
/// requests came to the node, and how many questions to the control plane.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    running: usize,
    found: usize,
    woken: usize,
    forwarded: usize,
    lookups: usize,
    wakes: usize,
}

/// As much as is always asked, by clients that ask all at once.
async fn asked(stage: &Stage, round: &str) -> Came {
    let strangers = |kind: &str| -> Vec<String> { (0..STRANGERS).map(|n| format!("{kind}{round}{n}")).collect() };
    let (found, woken) = (strangers("found"), strangers("woken"));
    let sandboxes = |ids: &[String]| -> Vec<Sandbox> { ids.iter().map(|id| stage.control.sandbox(id)).collect() };
    let (to_find, to_wake) = (sandboxes(&found), sandboxes(&woken));
    for (find, wake) in to_find.iter().zip(&to_wake) {
        find.running("127.0.0.1");
        wake.paused("127.0.0.1").always_wakes(Step::Truly);
    }
    let running = stage.control.sandbox("running");
    let before = (stage.node.requests(), running.lookups());
    let http1 = join_all((0..CONNECTIONS).map(|_| one_by_one(stage, "running", REQUESTS)));
    let http2 = join_all((0..CONNECTIONS).map(|_| at_once(stage, "running", REQUESTS)));
    // Over either version.
    let ask = async |(n, id): (usize, &String)| match n % 2 {
        0 => one_by_one(stage, id, 1).await,
        _ => at_once(stage, id, 1).await,
    };
    let each = |ids| join_all(<[String]>::iter(ids).enumerate().map(ask));
    let (http1, http2, found, woken) = tokio::join!(http1, http2, each(&found), each(&woken));
    let sum = |of: &[usize]| of.iter().sum::<usize>();
    let strangers = || to_find.iter().chain(&to_wake);
    Came {
        running: sum(&http1) + sum(&http2),
        found: sum(&found),
        woken: sum(&woken),
        forwarded: stage.node.requests() - before.0,
        lookups: strangers().map(Sandbox::lookups).sum::<usize>() + running.lookups() - before.1,
        wakes: strangers().map(Sandbox::connects).sum(),
    }
}

#[tokio::test]
async fn while_two_thousand_are_held_as_many_requests_of_others_are_answered_as_without_them() {
    crate::support::many_descriptors();
    let stage = Stage::new().await;
    let running = 2 * CONNECTIONS * REQUESTS;
    let all = Came {
        running,
        found: STRANGERS,
        woken: STRANGERS,
        forwarded: running + 2 * STRANGERS,
        lookups: 2 * STRANGERS,
        wakes: STRANGERS,
    };
    assert_eq!(asked(&stage, "alone").await, all);
    for hanging in BOTH {
        let id = format!("asleep{hanging:?}").to_lowercase();
        let crowd = Crowd::gather(&stage, &id, hanging).await;
        assert_eq!(asked(&stage, &id).await, all, "{hanging:?}");
        crowd.let_go(&stage).await;
    }
}

/// The work for so many requests, one after the other, is measured.
const MEASURED: usize = 200;
/// And so often, of which the least counts: what else the machine does makes caches cold.
const TIMES: usize = 10;
/// Rounds, of which the best count.
const ROUNDS: usize = 5;
/// How much more work a request may take: other work on the machine makes it seem half more at times, and one poll
/// of each who is held would make it many times more.
const MORE: f64 = 2.0;

/// The least work of the proxy for so many requests.
async fn work(stage: &Stage) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..TIMES {
        let before = stage.proxy.work();
        assert_eq!(one_by_one(stage, "running", MEASURED).await, MEASURED);
        least = least.min(stage.proxy.work().saturating_sub(before));
    }
    least
}

#[tokio::test]
async fn while_two_thousand_are_held_a_request_of_another_takes_no_more_work() {
    crate::support::many_descriptors();
    let stage = Stage::new().await;
    let lookups = stage.control.sandbox("running").lookups();
    work(&stage).await;
    for hanging in BOTH {
        let (mut without, mut with) = (Duration::MAX, Duration::MAX);
        for round in 0.. {
            without = without.min(work(&stage).await);
            let id = format!("asleep{hanging:?}{round}").to_lowercase();
            let crowd = Crowd::gather(&stage, &id, hanging).await;
            with = with.min(work(&stage).await);
            crowd.let_go(&stage).await;
            let more = with.as_secs_f64() / without.as_secs_f64();
            println!("{hanging:?}: {MEASURED} requests take {with:?} of work instead of {without:?}: {more:.3}");
            if more < MORE {
                break;
            }
            assert!(round + 1 < ROUNDS, "{hanging:?}: {more:.2} times the work, {with:?} instead of {without:?}");
        }
    }
    assert_eq!(stage.control.sandbox("running").lookups(), lookups, "nobody is asked for what runs");
}
