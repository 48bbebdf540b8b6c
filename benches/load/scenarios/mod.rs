//! What is measured. A scenario is a line in [`ALL`]; how its kind is measured stands in the kind's own module.

mod load;
mod memory;
mod rounds;
mod wake;

use std::fmt::Write as _;

pub(crate) use self::rounds::{Outcome, Row, run};
use self::wake::Clients;
use crate::{
    Bench,
    generator::{Job, Work},
    h2load::{self, Multiplexed},
    machine::{Machine, Tool},
    measure::Sample,
    peers::{HOST, Peer, Running},
    streams, upstream,
    wrk::{self, Load},
};

/// Something to be measured of every peer that can do it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Load by wrk on a proxy that is kept over all rounds: CPU time a request.
    Load(Load),
    /// The same on many sandboxes, of which some change meanwhile or none does, beside a list of them.
    Many(Load, Change),
    /// The same over HTTP/2, by h2load.
    Streams(Multiplexed),
    /// The same by this program: CPU time of what it does.
    Own(Job),
    /// So many connections that were answered once and stay: memory of each.
    Idle(usize),
    /// So many requests that the upstream does not answer: memory of each.
    Waiting(usize),
    /// So many requests held for one sandbox that sleeps, then released: memory of each, and the time that the
    /// release takes.
    Held(Clients),
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    None,
    /// One in a hundred a second.
    Some,
}

const fn many(change: Change) -> Kind {
    Kind::Many(Load { connections: 64, path: upstream::SMALL, upload: false, tls: false, many: true }, change)
}

const fn get(connections: usize, tls: bool) -> Kind {
    Kind::Load(Load { connections, path: upstream::SMALL, upload: false, tls, many: false })
}

const fn body(path: &'static str, upload: bool) -> Kind {
    Kind::Load(Load { connections: 16, path, upload, tls: false, many: false })
}

const fn h2(connections: usize, streams: usize, path: &'static str, pace: usize) -> Kind {
    Kind::Streams(Multiplexed { connections, streams, path, pace })
}

const fn own(work: Work, connections: usize) -> Kind {
    Kind::Own(Job { work, connections })
}

const fn held_h2(connections: usize, streams: usize) -> Kind {
    Kind::Held(Clients::Http2 { connections, streams })
}

#[rustfmt::skip] // A table.
pub(crate) const ALL: &[Scenario] = &[
    Scenario { name: "get-1", about: "small GET, 1 connection", kind: get(1, false) },
    Scenario { name: "get-64", about: "small GET, 64 connections", kind: get(64, false) },
    Scenario { name: "get-1000", about: "small GET, 1000 connections", kind: get(1000, false) },
    Scenario { name: "redis-get", about: "small GET to 1000 sandboxes in Redis, 64 connections",
        kind: many(Change::None) },
    Scenario { name: "redis-change", about: "the same, and one sandbox in a hundred changes each second",
        kind: many(Change::Some) },
    Scenario { name: "down", about: "1 MiB down, 16 connections", kind: body(upstream::DOWN, false) },
    Scenario { name: "up", about: "1 MiB up, 16 connections", kind: body(upstream::UP, true) },
    Scenario { name: "tls-get", about: "small GET over TLS, 64 connections", kind: get(64, true) },
    Scenario { name: "tls-full", about: "full TLS handshakes, each with a small GET, 16 at once",
        kind: own(Work::Full, 16) },
    Scenario { name: "tls-resumed", about: "resumed TLS handshakes, likewise", kind: own(Work::Resumed, 16) },
    Scenario { name: "h2-10x10", about: "small GET over HTTP/2, 10 connections of 10 streams",
        kind: h2(10, 10, upstream::SMALL, 25_000) },
    Scenario { name: "h2-100x100", about: "small GET over HTTP/2, 100 connections of 100 streams",
        kind: h2(100, 100, upstream::SMALL, 15_000) },
    Scenario { name: "h2-down", about: "1 MiB down over HTTP/2, 10 connections of 1 stream",
        kind: h2(10, 1, upstream::DOWN, 1_000) },
    Scenario { name: "ws-echo", about: "WebSocket messages of 1 KiB there and back, 64 sockets",
        kind: own(Work::Echo, 64) },
    Scenario { name: "ws-bulk", about: "down from WebSockets without end, 8 sockets", kind: own(Work::Bulk, 8) },
    Scenario { name: "idle", about: "5000 idle connections", kind: Kind::Idle(5000) },
    Scenario { name: "waiting", about: "2000 requests wait at the upstream", kind: Kind::Waiting(2000) },
    Scenario { name: "held-1000", about: "1000 requests held, then released", kind: Kind::Held(Clients::Http1(1000)) },
    Scenario { name: "held-5000", about: "5000 requests held, then released", kind: Kind::Held(Clients::Http1(5000)) },
    Scenario { name: "held-h2", about: "2000 held over HTTP/2, 100 connections of 20 streams",
        kind: held_h2(100, 20) },
];

/// The descriptors that a proxy needs for the largest.
pub(crate) fn most_descriptors() -> usize {
    ALL.iter().map(|scenario| scenario.kind.descriptors()).max().unwrap_or_default()
}

/// Every name, for the command line.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|scenario| scenario.name)
}

/// Every name and what it stands for.
pub(crate) fn help() -> String {
    ALL.iter().fold("Scenarios:\n".to_owned(), |mut help, Scenario { name, about, .. }| {
        let _ = writeln!(help, "  {name:12} {about}");
        help
    })
}

impl Scenario {
    /// What the figure counts.
    pub(crate) fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Load(_) | Kind::Many(..) | Kind::Streams(_) => "µs CPU/request",
            Kind::Own(Job { work, .. }) => work.unit(),
            Kind::Idle(_) => "KiB/connection",
            Kind::Waiting(_) | Kind::Held(Clients::Http1(_)) => "KiB/request",
            Kind::Held(Clients::Http2 { .. }) => "KiB/stream",
        }
    }

    /// What makes its load, where that is not this program.
    pub(crate) fn tool(&self) -> Option<Tool> {
        match self.kind {
            Kind::Load(_) | Kind::Many(..) => Some(wrk::TOOL),
            Kind::Streams(_) => Some(h2load::TOOL),
            Kind::Own(_) | Kind::Idle(_) | Kind::Waiting(_) | Kind::Held(_) => None,
        }
    }

    /// Whether the figure is memory.
    fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Idle(_) | Kind::Waiting(_) | Kind::Held(_))
    }

    /// Ours alone wakes anybody, and has many sandboxes.
    fn asks(&self, peer: &Peer) -> bool {
        match self.kind {
            Kind::Many(..) => peer.knows_many,
            Kind::Held(_) => peer.is_ours && !peer.knows_many,
            _ => !peer.knows_many,
        }
    }

    /// What the reader must know where this machine is too small for it.
    fn scaled(&self, machine: &Machine) -> Option<String> {
        let (wanted, fit) = (self.kind.at_once(), self.kind.fit(machine).at_once());
        (fit < wanted).then(|| format!("only {fit} at once: no descriptors for more (ulimit -Hn)"))
    }

    /// What a proxy that was just started has to have behind it.
    async fn warm_up(&self, proxy: &Running, bench: &Bench) -> anyhow::Result<()> {
        match self.kind.fit(&bench.machine) {
            Kind::Streams(load) => {
                // h2load looks at statuses only.
                streams::answered(proxy.h2, HOST).await?;
                load.warm_up(proxy.h2, HOST).await
            }
            _ => Ok(()),
        }
    }

    async fn sample(&self, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
        match self.kind.fit(&bench.machine) {
            Kind::Load(load) | Kind::Many(load, Change::None) => load::wrk(load, proxy, bench).await,
            Kind::Many(load, Change::Some) => load::wrk_among_changes(load, proxy, bench).await,
            Kind::Streams(streams) => load::h2load(streams, proxy, bench).await,
            Kind::Own(job) => load::generator(job, proxy, bench).await,
            Kind::Idle(count) => memory::idle(count, proxy).await,
            Kind::Waiting(count) => memory::waiting(count, proxy).await,
            Kind::Held(clients) => wake::sample(clients, proxy, bench).await,
        }
    }
}

impl Kind {
    /// Connections, or streams, that are there at once.
    fn at_once(self) -> usize {
        match self {
            Self::Load(Load { connections, .. })
            | Self::Many(Load { connections, .. }, _)
            | Self::Own(Job { connections, .. }) => connections,
            Self::Streams(streams) => streams.at_once(),
            Self::Idle(count) | Self::Waiting(count) => count,
            Self::Held(clients) => clients.requests(),
        }
    }

    /// What the proxy needs for that: one towards each client, one to the upstream for each request.
    fn descriptors(self) -> usize {
        match self {
            Self::Streams(Multiplexed { connections, .. }) | Self::Held(Clients::Http2 { connections, .. }) => {
                connections + self.at_once()
            }
            _ => 2 * self.at_once(),
        }
    }

    /// As much of it as a proxy has descriptors for.
    fn fit(self, machine: &Machine) -> Self {
        match self {
            Self::Load(load) => Self::Load(Load { connections: machine.fit(load.connections), ..load }),
            Self::Many(load, change) => Self::Many(Load { connections: machine.fit(load.connections), ..load }, change),
            Self::Own(job) => Self::Own(Job { connections: machine.fit(job.connections), ..job }),
            Self::Idle(count) => Self::Idle(machine.fit(count)),
            Self::Waiting(count) => Self::Waiting(machine.fit(count)),
            Self::Held(Clients::Http1(count)) => Self::Held(Clients::Http1(machine.fit(count))),
            Self::Held(Clients::Http2 { connections, streams }) => {
                held_h2(connections, machine.fit_streams(connections, streams))
            }
            Self::Streams(load) => {
                Self::Streams(Multiplexed { streams: machine.fit_streams(load.connections, load.streams), ..load })
            }
        }
    }
}
