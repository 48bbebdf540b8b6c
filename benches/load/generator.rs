//! Load for which there is no program: by this one, in a process of its own, so that what clients cost is nobody
//! else's. It connects, says `ready`, waits for a line, and then does the same thing on every connection, again and
//! again, until the time is over.

use std::{env, future::Future, net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, stdin},
    process::{Child, ChildStdout, Command},
    task::{JoinSet, LocalSet},
    time::{Instant, timeout},
};

use crate::{
    counted::{Counted, percentile},
    handshakes::Handshakes,
    options::Options,
    sockets::PATIENCE,
    websocket::{Bulk, Echo},
};

/// What is done again and again.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Work {
    /// A TLS handshake with everything, and a small GET
    Full,
    /// A TLS handshake with a ticket of the one before, and a small GET
    Resumed,
    /// A WebSocket message there and back
    Echo,
    /// 1 MiB from a WebSocket
    Bulk,
}

/// So many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) connections: usize,
}

/// The process, when it is ready; ended when dropped.
pub(crate) struct Generator {
    child: Child,
    said: BufReader<ChildStdout>,
    limit: Duration,
}

impl Work {
    /// Whether it goes over TLS.
    pub(crate) fn tls(self) -> bool {
        matches!(self, Self::Full | Self::Resumed)
    }

    /// What it is counted in.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Full | Self::Resumed => "µs CPU/handshake",
            Self::Echo => "µs CPU/message",
            Self::Bulk => "µs CPU/MiB",
        }
    }
}

impl Job {
    /// Starts it; returns when it is ready.
    pub(crate) async fn start(&self, address: SocketAddr, seconds: u16) -> anyhow::Result<Generator> {
        let name = self.work.to_possible_value().context("a name")?;
        let mut child = Command::new(env::current_exe()?)
            .args(["--bench", "--generate", name.get_name()])
            .arg(format!("--address={address}"))
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--seconds={seconds}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut line = String::new();
        timeout(PATIENCE, said.read_line(&mut line)).await.context("the load generator is not ready in time")??;
        ensure!(line == "ready\n", "the load generator failed");
        Ok(Generator { child, said, limit: PATIENCE + Duration::from_secs(seconds.into()) })
    }
}

impl Generator {
    /// Lets it begin; returns when the time is over.
    pub(crate) async fn run(mut self) -> anyhow::Result<Counted> {
        self.child.stdin.take().context("a pipe")?.write_all(b"go\n").await?;
        let mut said = String::new();
        timeout(self.limit, self.said.read_to_string(&mut said)).await.context("the load generator does not end")??;
        Counted::find(&said).context("the load generator counted nothing")
    }
}

/// A client that does its work once and again.
pub(crate) trait Client: Sized + 'static {
    /// Connects, where that is not part of the work.
    fn prepare(work: Work, address: SocketAddr) -> impl Future<Output = anyhow::Result<Self>>;

    fn once(&mut self) -> impl Future<Output = anyhow::Result<()>>;
}

/// Serves as the generator of another process of this program.
pub(crate) async fn serve(work: Work, options: &Options) -> anyhow::Result<()> {
    LocalSet::new()
        .run_until(async {
            match work {
                Work::Full | Work::Resumed => drive::<Handshakes>(work, options).await,
                Work::Echo => drive::<Echo>(work, options).await,
                Work::Bulk => drive::<Bulk>(work, options).await,
            }
        })
        .await
}

async fn drive<C: Client>(work: Work, options: &Options) -> anyhow::Result<()> {
    let address = options.address.context("--address")?;
    let mut clients = Vec::new();
    for _ in 0..options.connections {
        clients.push(C::prepare(work, address).await?);
    }
    println!("ready");
    ensure!(BufReader::new(stdin()).read_line(&mut String::new()).await? > 0, "nobody waits for this");

    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds().into());
    let mut working = JoinSet::new();
    for mut client in clients {
        working.spawn_local(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let begin = Instant::now();
                let done = timeout(PATIENCE, client.once()).await.context("no answer in time").flatten();
                if let Err(error) = done {
                    eprintln!("load: {error:#}");
                    return (times, 1);
                }
                times.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            (times, 0)
        });
    }
    let (times, errors): (Vec<_>, Vec<u64>) = working.join_all().await.into_iter().unzip();
    let elapsed = begin.elapsed().as_micros();
    let (mut times, errors) = (times.concat(), errors.iter().sum::<u64>());
    let (count, p50, p99) = (times.len(), percentile(&mut times, 50), percentile(&mut times, 99));
    println!("counted {count} {elapsed} {p50} {p99} {errors}");
    Ok(())
}
