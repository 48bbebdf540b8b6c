//! Load by wrk, and what it counted.

use std::{io::Write as _, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{process::Command, time::timeout};

use crate::{
    catalog::SANDBOXES,
    counted::Counted,
    machine::{self, Tool},
    sockets::PATIENCE,
    upstream::BODY,
};

pub(crate) const TOOL: Tool = Tool { program: "wrk", package: "wrk", skipped: "skipped: wrk is not installed" };

/// Requests that are sent one after the other on each of so many connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) path: &'static str,
    /// Whether they carry a body of [`BODY`] bytes.
    pub(crate) upload: bool,
    /// Whether they go over TLS.
    pub(crate) tls: bool,
    /// Whether they go to many sandboxes in turn.
    pub(crate) many: bool,
}

/// The URL names the sandbox, so that TLS does, but the proxy is here. And wrk's own report is for people: this one
/// is a line of numbers.
const SCRIPT: &str = r#"
function wrk.resolve(host, service)
  wrk.addrs = wrk.lookup("127.0.0.1", service)
end
function done(summary, latency, requests)
  local e = summary.errors
  io.stderr:write(string.format("counted %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Made once: what wrk itself does would otherwise be what is measured.
const MANY: &str = r#"
local all, at = {}, 0
function init(args)
  for n = 1, SANDBOXES do
    all[n] = wrk.format(nil, nil, { Host = "8000-many" .. (n - 1) .. ".sandbox.test" })
  end
end
function request()
  at = at % SANDBOXES + 1
  return all[at]
end
"#;

impl Load {
    /// Puts the load on a proxy for so long.
    pub(crate) async fn run(&self, address: SocketAddr, host: &str, seconds: u16) -> anyhow::Result<Counted> {
        let mut script = tempfile::Builder::new().suffix(".lua").tempfile()?;
        if self.upload {
            writeln!(script, "wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {BODY})")?;
        }
        if self.many {
            writeln!(script, "{}", MANY.replace("SANDBOXES", &SANDBOXES.to_string()))?;
        }
        script.write_all(SCRIPT.as_bytes())?;
        let scheme = if self.tls { "https" } else { "http" };
        let wrk = Command::new(machine::find(TOOL.program).context("wrk is not installed")?)
            .args(["--threads=1", "--timeout=10s"])
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--duration={seconds}s"))
            .arg(format!("--header=Host: {host}"))
            .arg("--script")
            .arg(script.path())
            .arg(format!("{scheme}://{host}:{}{}", address.port(), self.path))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let limit = Duration::from_secs(seconds.into()) + PATIENCE;
        let output = timeout(limit, wrk).await.context("wrk does not end")??;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let counted = Counted::find(&stderr);
        ensure!(output.status.success(), "wrk: {}: {stderr}", output.status);
        counted.with_context(|| format!("wrk counted nothing: {stderr}{}", String::from_utf8_lossy(&output.stdout)))
    }
}
