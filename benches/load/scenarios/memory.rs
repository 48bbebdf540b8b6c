//! Connections and requests that only are there: memory of each.

use crate::{
    measure::{Sample, float},
    peers::{HOST, Running},
    sockets::{answered, asking, until},
    upstream::WAIT,
};

pub(super) async fn idle(count: usize, proxy: &Running) -> anyhow::Result<Sample> {
    let before = proxy.rss()?;
    let _clients = answered(proxy.address, HOST, count).await?;
    grown(proxy, before, count)
}

pub(super) async fn waiting(count: usize, proxy: &Running) -> anyhow::Result<Sample> {
    let before = proxy.rss()?;
    let _clients = asking(proxy.address, WAIT, HOST, count).await?;
    until("every request is at the upstream", async || Ok(proxy.upstream.waiting().await? == count)).await?;
    grown(proxy, before, count)
}

/// The memory that each of so many took.
pub(super) fn grown(proxy: &Running, before: u64, count: usize) -> anyhow::Result<Sample> {
    let now = proxy.rss()?;
    let figure = float(now.saturating_sub(before)) / float(u64::try_from(count)?);
    Ok(Sample { figure, rss_mib: float(now) / 1024.0, ..Sample::default() })
}
