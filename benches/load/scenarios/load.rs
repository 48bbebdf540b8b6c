//! Requests as fast as they are answered: CPU time of each.

use crate::{
    Bench,
    measure::{Sample, float},
    peers::{HOST, Running},
    wrk::Load,
};

pub(super) async fn sample(load: Load, proxy: &Running, bench: &Bench) -> anyhow::Result<Sample> {
    let before = proxy.cpu()?;
    let counted = load.run(proxy.address, HOST, bench.options.seconds()).await?;
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
