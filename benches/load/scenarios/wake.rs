//! Requests held for a sandbox that sleeps: memory of each, and the time from the end of the wake to the first and
//! to the last byte of their answers.

use anyhow::Context as _;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::memory::grown;
use crate::{
    Bench,
    measure::Sample,
    peers::Running,
    sockets::{self, Answer, PATIENCE, asking, until},
    streams,
    upstream::{GREETING, SMALL},
};

/// How the requests come.
#[derive(Clone, Copy)]
pub(super) enum Clients {
    /// Each on a connection of its own.
    Http1(usize),
    /// So many streams on each of so many connections.
    Http2 { connections: usize, streams: usize },
}

impl Clients {
    pub(super) fn requests(self) -> usize {
        match self {
            Self::Http1(count) => count,
            Self::Http2 { connections, streams } => connections * streams,
        }
    }

    /// Sends them all; the answers, in time or not.
    async fn ask(self, proxy: &Running, host: &str) -> anyhow::Result<JoinSet<anyhow::Result<Answer>>> {
        let mut answers = JoinSet::new();
        match self {
            Self::Http1(count) => {
                for mut client in asking(proxy.address, SMALL, host, count).await? {
                    answers.spawn(async move { timeout(PATIENCE, client.answer()).await? });
                }
            }
            Self::Http2 { connections, streams } => {
                for _ in 0..connections {
                    for answer in streams::asking(proxy.h2, SMALL, host, streams).await? {
                        answers.spawn(async move { timeout(PATIENCE, answer).await? });
                    }
                }
            }
        }
        Ok(answers)
    }
}

pub(super) async fn sample(clients: Clients, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    let count = clients.requests();
    let sleeper = bench.control_plane.sleeper();
    let host = format!("8000-{}.sandbox.test", sleeper.id);
    let before = proxy.rss()?;
    let answers = clients.ask(proxy, &host).await?;
    until("every request is held", async || Ok(held(proxy).await? == count)).await?;
    let memory = grown(proxy, before, count)?;

    let released = Instant::now();
    sleeper.release();
    let answers: Vec<anyhow::Result<Answer>> = answers.join_all().await;
    until("no request is held", async || Ok(held(proxy).await? == 0)).await?;

    let good = |answer: &&Answer| answer.status == "200" && answer.body == GREETING;
    let good: Vec<_> = answers.iter().flatten().filter(good).collect();
    let after = |moment: Option<Instant>| moment.map(|moment| (moment - released).as_secs_f64() * 1e3);
    Ok(Sample {
        first_byte_ms: after(good.iter().map(|answer| answer.first_byte).min()),
        last_byte_ms: after(good.iter().map(|answer| answer.last_byte).max()),
        errors: u64::try_from(count - good.len())?,
        ..memory
    })
}

/// The gauge of held requests.
async fn held(proxy: &Running) -> anyhow::Result<usize> {
    let metrics = sockets::get(proxy.health, "/metrics", "health").await?;
    let gauge = metrics.lines().find_map(|line| line.strip_prefix("client_proxy_held_requests "));
    Ok(gauge.context("no gauge of held requests")?.trim().parse()?)
}
