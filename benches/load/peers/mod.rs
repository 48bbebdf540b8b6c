//! The proxies that are measured, each started fresh for what is measured of it: own folder, free ports, a first
//! request answered before anything counts, everything ended and removed when the handle drops.

mod haproxy;
mod nginx;
mod ours;

use std::{
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    Bench,
    certificate::Certificate,
    measure, scenarios,
    sockets::{self, PATIENCE},
    upstream::{GREETING, SMALL, Upstream},
};

pub(crate) const ALL: [Peer; 6] = [
    ours::PEER,
    // The same once more: the spread between the two is what a figure cannot resolve.
    Peer { name: "client-proxy again", ..ours::PEER },
    nginx::PEER,
    haproxy::PEER,
    ours::STATIC,
    ours::REDIS,
];

/// The Host of every request: port 8000 of the sandbox that runs.
pub(crate) const HOST: &str = "8000-bench.sandbox.test";

/// Connections beside those of a scenario: warming up, asking for metrics, and what the former scenario's clients
/// have left half closed.
const OTHER_CONNECTIONS: usize = 1000;

/// A proxy, and how it is told to route `{port}-{sandbox}.{domain}` to the upstream.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Whether it is what the others are compared with.
    pub(crate) is_ours: bool,
    /// Whether it knows many sandboxes, and is measured with these and nothing else.
    pub(crate) knows_many: bool,
    program: fn() -> Option<PathBuf>,
    /// Writes its configuration into the site's folder; how to start it in the foreground.
    command: fn(PathBuf, &Site<'_>) -> io::Result<Command>,
}

/// Where a proxy stands, and how large it may be: the same for all.
struct Site<'a> {
    folder: PathBuf,
    /// HTTP/1.1.
    listen: SocketAddr,
    /// HTTP/1.1 over TLS.
    tls: SocketAddr,
    certificate: &'a Certificate,
    /// HTTP/2 in the clear.
    h2: SocketAddr,
    health: SocketAddr,
    upstream: SocketAddr,
    control_plane: SocketAddr,
    redis: Option<u16>,
    threads: usize,
    /// Client connections that it must be able to have, each with one upstream.
    connections: usize,
}

/// A proxy that serves; ended when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
    /// HTTP/1.1 over TLS.
    pub(crate) tls: SocketAddr,
    /// HTTP/2 in the clear.
    pub(crate) h2: SocketAddr,
    /// Health and metrics; only ours has them.
    pub(crate) health: SocketAddr,
    /// Its own: nobody's connections take another's descriptors and ports.
    pub(crate) upstream: Upstream,
    _folder: TempDir,
}

/// Others may take a port between the moment it was found free and the moment it is bound.
const ATTEMPTS: usize = 3;

impl Peer {
    pub(crate) fn installed(&self) -> bool {
        (self.program)().is_some()
    }

    /// Starts it; returns when it has answered a request.
    pub(crate) async fn start(&self, bench: &Bench) -> anyhow::Result<Running> {
        let mut attempt = 1;
        loop {
            match self.try_start(bench).await {
                Err(error) if attempt < ATTEMPTS => eprintln!("load: {} again: {error:#}", self.name),
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    async fn try_start(&self, bench: &Bench) -> anyhow::Result<Running> {
        let folder = tempfile::Builder::new().prefix("client-proxy-load-").tempdir()?;
        let upstream = Upstream::start().context("the upstream")?;
        let [listen, tls, h2, health] = free_addresses()?;
        let site = Site {
            folder: folder.path().to_owned(),
            listen,
            tls,
            certificate: &bench.certificate,
            h2,
            health,
            upstream: upstream.address,
            control_plane: bench.control_plane.address,
            redis: bench.redis.as_ref().map(|redis| redis.port),
            threads: bench.machine.cores,
            connections: bench.machine.fit(scenarios::most_descriptors().div_ceil(2) + OTHER_CONNECTIONS),
        };
        let log = site.folder.join("log");
        let mut command = (self.command)((self.program)().context("not installed")?, &site)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let mut running = Running { child, address: listen, tls, h2, health, upstream, _folder: folder };
        running.serves(&log).await?;
        Ok(running)
    }
}

impl Running {
    async fn serves(&mut self, log: &Path) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let fault = match sockets::get(self.address, SMALL, HOST).await {
                Ok(body) if body == GREETING => return Ok(()),
                Ok(body) => anyhow::anyhow!("somebody else answers: {body}"),
                Err(error) => error,
            };
            let ended = self.ended();
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(log)?;
                bail!(
                    "it does not serve ({}): {fault:#}\n{log}",
                    ended.map_or("runs".to_owned(), |end| end.to_string())
                );
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether it has ended by itself, and how.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The CPU time of all its processes.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        measure::cpu(&measure::tree(self.child.id())?)
    }

    /// The memory of all its processes, in KiB.
    pub(crate) fn rss(&self) -> anyhow::Result<u64> {
        measure::rss(&measure::tree(self.child.id())?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Parents first: they start no other children then. What is gone already needs no signal.
        let tree = measure::tree(self.child.id()).unwrap_or_default();
        let _ = self.child.kill();
        for pid in tree.iter().skip(1).filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Loopback addresses that nobody listens on.
fn free_addresses<const N: usize>() -> io::Result<[SocketAddr; N]> {
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    // All are held until all are found: no two are the same.
    let mut listeners = Vec::with_capacity(N);
    for address in &mut addresses {
        let listener = TcpListener::bind(*address)?;
        *address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addresses)
}
