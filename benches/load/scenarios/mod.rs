//! What is measured. A scenario is a line in [`ALL`]; how its kind is measured stands in the kind's own module.

mod load;
mod memory;
mod wake;

use std::fmt::Write as _;

use crate::{
    Bench,
    measure::Sample,
    peers::{self, Peer, Running},
    sockets, upstream,
    wrk::{self, Load},
};

/// Something to be measured of every peer that can do it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    about: &'static str,
    kind: Kind,
}

enum Kind {
    /// Load by wrk on a proxy that is kept over all rounds: CPU time a request.
    Load(Load),
    /// So many connections that were answered once and stay: memory of each.
    Idle(usize),
    /// So many requests that the upstream does not answer: memory of each.
    Waiting(usize),
    /// So many requests held for one sandbox that sleeps, then released: memory of each, and the time that the
    /// release takes.
    Held(usize),
}

const fn get(connections: usize) -> Kind {
    Kind::Load(Load { connections, path: upstream::SMALL, upload: false })
}

#[rustfmt::skip] // A table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario { name: "get-1", about: "small GET, 1 connection", kind: get(1) },
    Scenario { name: "get-64", about: "small GET, 64 connections", kind: get(64) },
    Scenario { name: "get-1000", about: "small GET, 1000 connections", kind: get(1000) },
    Scenario { name: "down", about: "1 MiB down, 16 connections",
        kind: Kind::Load(Load { connections: 16, path: upstream::DOWN, upload: false }) },
    Scenario { name: "up", about: "1 MiB up, 16 connections",
        kind: Kind::Load(Load { connections: 16, path: upstream::UP, upload: true }) },
    Scenario { name: "idle", about: "5000 idle connections", kind: Kind::Idle(5000) },
    Scenario { name: "waiting", about: "2000 requests wait at the upstream", kind: Kind::Waiting(2000) },
    Scenario { name: "held-1000", about: "1000 requests held, then released", kind: Kind::Held(1000) },
    Scenario { name: "held-5000", about: "5000 requests held, then released", kind: Kind::Held(5000) },
];

/// The client connections of the largest.
pub(crate) fn most_connections() -> usize {
    ALL.iter().map(Scenario::connections).max().unwrap_or_default()
}

/// Every name, for the command line.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|scenario| scenario.name)
}

/// Every name and what it stands for.
pub(crate) fn help() -> String {
    ALL.iter().fold("Scenarios:\n".to_owned(), |mut help, Scenario { name, about, .. }| {
        let _ = writeln!(help, "  {name:10} {about}");
        help
    })
}

/// What came of one peer in one scenario.
pub(crate) enum Outcome {
    /// The medians.
    Measured(Sample),
    /// The proxy or the load generator is not there.
    Missing(&'static str),
    Failed(anyhow::Error),
}

/// One peer in one scenario.
pub(crate) struct Row {
    pub(crate) peer: &'static Peer,
    pub(crate) outcome: Outcome,
    /// What else the reader must know.
    pub(crate) note: Option<String>,
}

impl Scenario {
    /// What the figure counts.
    pub(crate) fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Load(_) => "µs CPU/request",
            Kind::Idle(_) => "KiB/connection",
            Kind::Waiting(_) | Kind::Held(_) => "KiB/request",
        }
    }

    /// Whether wrk makes its load.
    pub(crate) fn needs_wrk(&self) -> bool {
        matches!(self.kind, Kind::Load(_))
    }

    /// Ours alone wakes anybody.
    fn asks(&self, peer: &Peer) -> bool {
        peer.is_ours || !matches!(self.kind, Kind::Held(_))
    }

    /// The client connections that it wants.
    fn connections(&self) -> usize {
        match self.kind {
            Kind::Load(Load { connections, .. }) => connections,
            Kind::Idle(count) | Kind::Waiting(count) | Kind::Held(count) => count,
        }
    }

    async fn sample(&self, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
        let connections = bench.machine.fit(self.connections());
        match self.kind {
            Kind::Load(load) => load::sample(Load { connections, ..load }, proxy, bench).await,
            Kind::Idle(_) => memory::idle(connections, proxy).await,
            Kind::Waiting(_) => memory::waiting(connections, proxy, bench).await,
            Kind::Held(_) => wake::sample(connections, proxy, bench).await,
        }
    }
}

/// One peer on its way through the rounds.
struct Contender {
    peer: &'static Peer,
    running: Option<Running>,
    samples: Vec<Sample>,
    trouble: Option<Outcome>,
}

/// Measures every peer in every round, in an order that is reversed each time: whatever else this machine does
/// meanwhile, it does to all of them.
pub(crate) async fn run(scenario: &'static Scenario, bench: &Bench) -> Vec<Row> {
    let mut contenders: Vec<_> =
        peers::ALL.iter().filter(|peer| scenario.asks(peer)).map(|peer| Contender::new(peer, scenario)).collect();
    let fit = bench.machine.fit(scenario.connections());
    let scaled = fit < scenario.connections();
    let note = scaled.then(|| format!("only {fit} connections: no descriptors for more (ulimit -Hn)"));
    if let Some(note) = &note {
        eprintln!("\n!!! {}: {note}\n", scenario.name);
    }
    let rounds = if contenders.iter().all(|contender| contender.trouble.is_some()) {
        0
    } else if scenario.needs_wrk() {
        bench.options.rounds()
    } else {
        bench.options.memory_rounds()
    };
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", scenario.name);
        for contender in &mut contenders {
            contender.take_turn(scenario, bench).await;
        }
        contenders.reverse();
    }
    // As they stand in the list, whichever way round the last one ended.
    let mut rows = Vec::with_capacity(contenders.len());
    for peer in &peers::ALL {
        let at = contenders.iter().position(|contender| std::ptr::eq(contender.peer, peer));
        rows.extend(at.map(|at| contenders.swap_remove(at).row(note.clone())));
    }
    rows
}

impl Contender {
    fn new(peer: &'static Peer, scenario: &Scenario) -> Self {
        let missing = match (peer.installed(), scenario.needs_wrk() && !wrk::installed()) {
            (false, _) => Some("not installed"),
            (true, true) => Some("skipped: wrk is not installed"),
            (true, false) => None,
        };
        Self { peer, running: None, samples: Vec::new(), trouble: missing.map(Outcome::Missing) }
    }

    async fn take_turn(&mut self, scenario: &Scenario, bench: &Bench) {
        if self.trouble.is_some() {
            return;
        }
        match self.measure(scenario, bench).await {
            Ok(sample) => self.samples.push(sample),
            Err(error) => {
                eprintln!("load: {} in {}: {error:#}", self.peer.name, scenario.name);
                self.trouble = Some(Outcome::Failed(error));
            }
        }
    }

    async fn measure(&mut self, scenario: &Scenario, bench: &Bench) -> anyhow::Result<Sample> {
        let mut proxy = if let Some(proxy) = self.running.take() {
            proxy
        } else {
            let proxy = self.peer.start(bench).await?;
            sockets::warm_up(proxy.address, peers::HOST).await?;
            proxy
        };
        let sample = scenario.sample(&proxy, bench).await;
        if let Some(status) = proxy.ended() {
            anyhow::bail!("it ended by itself: {status}");
        }
        let sample = sample?;
        // Memory is measured of a proxy that has had no other: an allocator gives back late what it once took.
        if scenario.needs_wrk() {
            self.running = Some(proxy);
        }
        Ok(sample)
    }

    fn row(self, note: Option<String>) -> Row {
        let nothing = || Outcome::Failed(anyhow::anyhow!("no rounds"));
        let outcome = self.trouble.or_else(|| Sample::median(&self.samples).map(Outcome::Measured));
        Row { peer: self.peer, outcome: outcome.unwrap_or_else(nothing), note }
    }
}
