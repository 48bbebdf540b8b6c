//! Every peer in every round, and what came of it.

use super::Scenario;
use crate::{
    Bench,
    measure::Sample,
    peers::{self, Peer, Running},
    sockets,
};

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
    let note = scenario.scaled(&bench.machine);
    if let Some(note) = &note {
        eprintln!("\n!!! {}: {note}\n", scenario.name);
    }
    let rounds = if contenders.iter().all(|contender| contender.trouble.is_some()) {
        0
    } else if scenario.is_memory() {
        bench.options.memory_rounds()
    } else {
        bench.options.rounds()
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
        let tool = scenario.tool().filter(|tool| !tool.installed());
        let missing = if peer.installed() { tool.map(|tool| tool.skipped) } else { Some("not installed") };
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
            scenario.warm_up(&proxy, bench).await?;
            proxy
        };
        let sample = scenario.sample(&proxy, bench).await;
        if let Some(status) = proxy.ended() {
            anyhow::bail!("it ended by itself: {status}");
        }
        let sample = sample?;
        // Memory is measured of a proxy that has had no other: an allocator gives back late what it once took.
        if !scenario.is_memory() {
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
