//! Requests, or whatever else, as fast as they are answered: CPU time of each.

use anyhow::Context as _;

use crate::{
    Bench,
    counted::Counted,
    generator::Job,
    h2load::Multiplexed,
    measure::{Sample, float},
    peers::{HOST, Running},
    wrk::Load,
};

pub(super) async fn wrk(load: Load, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    let address = if load.tls { proxy.tls } else { proxy.address };
    sample(proxy, load.run(address, HOST, bench.options.seconds())).await
}

/// While others change what Redis has; a list does not change.
pub(super) async fn wrk_among_changes(load: Load, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    let redis = bench.redis.as_ref().context("no Redis")?;
    tokio::select! {
        sample = wrk(load, proxy, bench) => sample,
        changed = redis.change() => changed.and_then(|()| anyhow::bail!("nobody changes anything")),
    }
}

pub(super) async fn h2load(streams: Multiplexed, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    sample(proxy, streams.run(proxy.h2, HOST, bench.options.seconds())).await
}

pub(super) async fn generator(job: Job, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    let address = if job.work.tls() { proxy.tls } else { proxy.address };
    let generator = job.start(address, bench.options.seconds()).await?;
    sample(proxy, generator.run()).await
}

async fn sample(proxy: &Running, load: impl Future<Output = anyhow::Result<Counted>>) -> anyhow::Result<Sample> {
    let before = proxy.cpu()?;
    let counted = load.await?;
    let spent = proxy.cpu()?.saturating_sub(before);
    Ok(Sample {
        figure: spent.as_secs_f64() * 1e6 / counted.requests,
        requests_per_second: Some(counted.requests / counted.seconds),
        p50_ms: Some(counted.p50_ms),
        p99_ms: Some(counted.p99_ms),
        rss_mib: float(proxy.rss()?) / 1024.0,
        errors: counted.errors,
        ..Sample::default()
    })
}
