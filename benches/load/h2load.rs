//! Load over HTTP/2 in the clear, by h2load, and what it counted.

use std::{fs, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{process::Command, time::timeout};

use crate::{
    counted::{Counted, percentile},
    machine::{self, Tool},
    measure::float,
    sockets::PATIENCE,
};

pub(crate) const TOOL: Tool =
    Tool { program: "h2load", package: "nghttp2-client", skipped: "skipped: h2load is not installed" };

/// Requests on so many streams at once of each of so many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiplexed {
    pub(crate) connections: usize,
    /// On each connection.
    pub(crate) streams: usize,
    pub(crate) path: &'static str,
    /// Requests for each second that a round shall last. They are counted out, because h2load cuts what is under way
    /// when a time is over: thousands of requests that cost something and would count for nothing.
    pub(crate) pace: usize,
}

impl Multiplexed {
    /// So many requests are under way at once.
    pub(crate) fn at_once(&self) -> usize {
        self.connections * self.streams
    }

    /// Every stream once or more: connections, to the upstream as well, are there after that.
    pub(crate) async fn warm_up(&self, address: SocketAddr, host: &str) -> anyhow::Result<()> {
        let counted = self.requests(address, host, 2 * self.at_once()).await?;
        ensure!(counted.errors == 0, "{} errors while it was warmed up", counted.errors);
        Ok(())
    }

    /// Puts the load on a proxy for about so long.
    pub(crate) async fn run(&self, address: SocketAddr, host: &str, seconds: u16) -> anyhow::Result<Counted> {
        self.requests(address, host, self.pace * usize::from(seconds)).await
    }

    async fn requests(&self, address: SocketAddr, host: &str, count: usize) -> anyhow::Result<Counted> {
        let log = tempfile::NamedTempFile::new()?;
        let h2load = Command::new(machine::find(TOOL.program).context("h2load is not installed")?)
            .arg(format!("--clients={}", self.connections))
            .arg(format!("--max-concurrent-streams={}", self.streams))
            .arg(format!("--requests={count}"))
            .arg(format!("--log-file={}", log.path().display()))
            // The :authority is the URI's: no port, as in every other scenario.
            .arg(format!("--connect-to={address}"))
            .arg(format!("http://{host}{}", self.path))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        // However slow it is: a count of requests has no end of its own.
        let output = timeout(4 * PATIENCE, h2load).await.context("h2load does not end")??;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "h2load: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        read(&said, &fs::read_to_string(log.path())?, count).with_context(|| format!("h2load counted nothing: {said}"))
    }
}

/// h2load's report, and its log: a line of start, status and µs for each request.
fn read(said: &str, log: &str, wanted: usize) -> Option<Counted> {
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start));
    let seconds = line("finished in ")?.split(',').next().and_then(duration)?;
    let good: u64 = line("status codes: ")?.split(' ').next()?.parse().ok()?;
    let mut times: Vec<u32> = log.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
    let mut percentile = |hundredths| f64::from(percentile(&mut times, hundredths)) / 1e3;
    Some(Counted {
        requests: (good > 0).then(|| float(good))?,
        seconds: seconds.as_secs_f64(),
        p50_ms: percentile(50),
        p99_ms: percentile(99),
        errors: u64::try_from(wanted).ok()?.saturating_sub(good),
    })
}

/// As h2load writes it: `1.05s`, `312.40ms`, `950us`.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number.parse::<f64>().ok()? * scale))
}
