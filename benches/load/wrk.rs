//! Load by wrk, and what it counted.

use std::{io::Write as _, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{process::Command, time::timeout};

use crate::{machine, sockets::PATIENCE, upstream::BODY};

const PROGRAM: &str = "wrk";

/// Requests that are sent one after the other on each of so many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) path: &'static str,
    /// Whether they carry a body of [`BODY`] bytes.
    pub(crate) upload: bool,
}

/// What wrk counted.
pub(crate) struct Counted {
    pub(crate) requests: f64,
    pub(crate) seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Connections and requests that failed, and answers of 400 and above.
    pub(crate) errors: u64,
}

/// wrk's own report is for people: this one is a line of numbers.
const DONE: &str = r#"
function done(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format("counted %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Whether there is a wrk.
pub(crate) fn installed() -> bool {
    machine::find(PROGRAM).is_some()
}

impl Load {
    /// Puts the load on a proxy for so long.
    pub(crate) async fn run(&self, address: SocketAddr, host: &str, seconds: u16) -> anyhow::Result<Counted> {
        let mut script = tempfile::Builder::new().suffix(".lua").tempfile()?;
        if self.upload {
            writeln!(script, "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {BODY})")?;
        }
        script.write_all(DONE.as_bytes())?;
        let wrk = Command::new(machine::find(PROGRAM).context("wrk is not installed")?)
            .args(["--threads=1", "--timeout=10s"])
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--duration={seconds}s"))
            .arg(format!("--header=Host: {host}"))
            .arg("--script")
            .arg(script.path())
            .arg(format!("http://{address}{}", self.path))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let limit = Duration::from_secs(seconds.into()) + PATIENCE;
        let output = timeout(limit, wrk).await.context("wrk does not end")??;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let counted = stderr.lines().find_map(|line| line.strip_prefix("counted ")).and_then(Counted::parse);
        ensure!(output.status.success(), "wrk: {}: {stderr}", output.status);
        counted.with_context(|| format!("wrk counted nothing: {stderr}{}", String::from_utf8_lossy(&output.stdout)))
    }
}

impl Counted {
    fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [requests, microseconds, p50, p99, _] = numbers[..] else { return None };
        let errors = line.rsplit(' ').next()?.parse().ok()?;
        let (p50_ms, p99_ms) = (p50 / 1e3, p99 / 1e3);
        (requests > 0.0).then_some(Self { requests, seconds: microseconds / 1e6, p50_ms, p99_ms, errors })
    }
}
