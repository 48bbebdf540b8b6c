//! The load benchmark: what one request costs, what one connection and one held request take, and how nginx and
//! HAProxy do at the same. `cargo bench --bench load -- --help`; `benches/README.md` tells what the figures mean.
//!
//! Every party is a process of its own: the proxy under test (the release binary), a peer, the upstream (this
//! program again), the load generator (wrk, h2load, or this program again; where requests only wait, this process). A
//! new scenario is a line in `scenarios::ALL`, a new peer one in `peers::ALL`.

mod catalog;
mod certificate;
mod control_plane;
mod counted;
mod generator;
mod h2load;
mod handshakes;
mod machine;
mod measure;
mod options;
mod peers;
mod report;
mod scenarios;
mod sockets;
mod streams;
mod upstream;
mod websocket;
mod wrk;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    catalog::Redis, certificate::Certificate, control_plane::ControlPlane, machine::Machine, options::Options,
    report::Report,
};

/// What all scenarios share.
struct Bench {
    options: Options,
    machine: Machine,
    certificate: Certificate,
    control_plane: ControlPlane,
    /// Where it is installed.
    redis: Option<Redis>,
}

fn main() -> ExitCode {
    // `cargo test --benches` runs it too, without this argument: there is nothing to test but that it compiles.
    let wanted = std::env::args().any(|argument| ["--bench", "--help", "-h"].contains(&&*argument));
    if !wanted {
        eprintln!("load: a benchmark, not a test. Run it with: cargo bench --bench load -- --help");
        return ExitCode::SUCCESS;
    }
    match serve_or_measure(Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve_or_measure(options: Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if options.upstream {
            upstream::serve().await?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(work) = options.generate {
            generator::serve(work, &options).await?;
            return Ok(ExitCode::SUCCESS);
        }
        // Whoever interrupts it drops the future, and with it every process and folder.
        tokio::select! {
            outcome = measure(options) => outcome,
            interrupted = interrupted() => interrupted.and_then(|()| anyhow::bail!("interrupted")),
        }
    })
}

async fn measure(options: Options) -> anyhow::Result<ExitCode> {
    let machine = Machine::prepare()?;
    let bench = Bench {
        certificate: Certificate::make().context("a certificate")?,
        control_plane: ControlPlane::start().await.context("the control plane")?,
        redis: Redis::start().await.context("Redis")?,
        options,
        machine,
    };
    let mut report = Report::new(&bench);
    for scenario in bench.options.scenarios() {
        report.add(scenario, scenarios::run(scenario, &bench).await);
    }
    print!("{}", report.table());
    if let Some(file) = &bench.options.json {
        std::fs::write(file, report.json()?).with_context(|| format!("{}", file.display()))?;
    }
    if let Some(wrong) = report.wrong() {
        eprintln!("load: {wrong}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn interrupted() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}
