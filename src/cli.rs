//! The commands. Exit codes: 0 done, 1 failed, 2 asked for wrongly (arguments or configuration).

use std::{
    fmt::Display,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
#[cfg(feature = "dev")]
use client_proxy::dev;
use client_proxy::{
    app,
    config::{Config, Environment, Faults, Loaded},
};
use reqwest::Url;

/// The exit code for bad arguments and configuration faults.
pub(crate) const MISUSED: u8 = 2;

/// How long the health endpoint may take.
const HEALTH_LIMIT: Duration = Duration::from_secs(5);

/// How long the program waits at its end until it is heard.
const LAST_WORDS: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  client-proxy --config /etc/client-proxy.toml
  client-proxy check --config /etc/client-proxy.toml
  REDIS_URL=10.0.0.5:6379 API_INTERNAL_GRPC_ADDRESS=10.0.0.6:5009 client-proxy
  CLIENT_PROXY__RESUME__HOLD_TIMEOUT=20s client-proxy --config /etc/client-proxy.toml

Every key of the file can be overridden by a variable CLIENT_PROXY__SECTION__KEY.
Without arguments, and with REDIS_URL or REDIS_CLUSTER_URL set, it serves with the variables of E2B's client-proxy.
Exit codes: 0 done, 1 failed, 2 bad arguments or configuration.";

const CHECK_EXAMPLES: &str = "\
Example:
  client-proxy check --config /etc/client-proxy.toml > effective.toml

All faults are listed at once on standard error. Exit codes: 0 valid, 2 not.";

const HEALTH_EXAMPLES: &str = "\
Example, as a container's health check:
  HEALTHCHECK CMD [\"client-proxy\", \"health\"]

Exit codes: 0 healthy, 1 not, or no answer within 5 seconds.";

/// The edge reverse proxy in front of sandboxes: finds them, wakes them, holds requests meanwhile.
#[derive(Parser)]
#[command(name = "client-proxy", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Serve with this configuration (TOML); the same as `run --config FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve
    Run(Source),
    /// Validate a configuration and print what it comes to, secrets masked
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Source),
    /// Ask a running client-proxy whether it is healthy
    #[command(after_help = HEALTH_EXAMPLES)]
    Health {
        /// The health endpoint
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3003/health")]
        url: Url,
    },
    /// A playground on this machine: control API, sandboxes that really sleep, and the proxy
    #[cfg(feature = "dev")]
    Dev(Box<dev::Options>),
    /// The root process of a sandbox of the playground
    #[cfg(feature = "dev")]
    #[command(hide = true)]
    SandboxAgent(dev::agent::Args),
}

/// Where the configuration comes from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Source {
    /// The configuration (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take it from the variables of E2B's client-proxy (`REDIS_URL`, `API_INTERNAL_GRPC_ADDRESS`, ...)
    #[arg(long)]
    from_e2b_env: bool,
}

impl Source {
    pub(crate) fn file(file: PathBuf) -> Self {
        Self { config: Some(file), from_e2b_env: false }
    }

    /// The variables of E2B's client-proxy, where they are there.
    pub(crate) fn environment() -> Option<Self> {
        Config::is_e2b(&environment()).then_some(Self { config: None, from_e2b_env: true })
    }

    /// The configuration, or all that is wrong with it.
    fn read(&self) -> Result<Loaded, String> {
        match &self.config {
            Some(file) => read(file),
            None => Config::load_e2b(&environment()).map_err(|faults| listed("the environment", &faults)),
        }
    }

    /// The same for a process that serves.
    fn reread(&self) -> Result<Loaded, String> {
        match &self.config {
            Some(file) => reread(file),
            None => self.read(),
        }
    }
}

/// Serves until told to end.
pub(crate) fn run(source: Source) -> ExitCode {
    match load(&source) {
        Ok(loaded) => exit(app::run(loaded, Box::new(move || source.reread()))),
        Err(code) => code,
    }
}

/// Serves the playground until told to end, or plays the demo.
#[cfg(feature = "dev")]
pub(crate) fn play(options: &dev::Options) -> ExitCode {
    exit(app::dev(options))
}

/// Runs inside a sandbox of the playground.
#[cfg(feature = "dev")]
pub(crate) fn sandbox_agent(arguments: &dev::agent::Args) -> ExitCode {
    exit(dev::agent::run(arguments))
}

fn exit(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, format_args!("{error:#}")),
    }
}

/// Prints the effective configuration.
pub(crate) fn check(source: &Source) -> ExitCode {
    let loaded = match load(source) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    let grace = loaded.config.grace();
    let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    let printed = write!(
        std::io::stdout(),
        "# Shutdown takes up to {seconds} s (drain_delay + drain_timeout and some for last words): the grace\n\
         # period that a platform must give, e.g. terminationGracePeriodSeconds: {seconds}\n\n{}",
        loaded.effective
    );
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, format_args!("cannot print: {error}")),
    }
}

/// Asks the health endpoint.
pub(crate) fn health(url: Url) -> ExitCode {
    match ask(url) {
        Ok(status) if status.is_success() => ExitCode::SUCCESS,
        Ok(status) => fail(1, format_args!("not healthy: {status}")),
        Err(error) => fail(1, format_args!("no answer: {error:#}")),
    }
}

fn ask(url: Url) -> anyhow::Result<reqwest::StatusCode> {
    app::install_tls_provider();
    let mut client =
        reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(HEALTH_LIMIT);
    if url.scheme() == "http" {
        // Small images have no certificates, and without any the default would refuse to start.
        client = client.tls_certs_only([]);
    }
    let client = client.build()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async { Ok(client.get(url).send().await?.status()) })
}

/// The configuration, or the exit code after its faults were printed.
fn load(source: &Source) -> Result<Loaded, ExitCode> {
    source.read().map_err(|wrong| fail(MISUSED, wrong))
}

/// The configuration, or all that is wrong with it.
fn read(file: &Path) -> Result<Loaded, String> {
    let name = file.display();
    let text = std::fs::read(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    Config::load(&text, &environment()).map_err(|faults| listed(&name.to_string(), &faults))
}

fn listed(name: &str, faults: &Faults) -> String {
    let count = faults.0.len();
    let noun = if count == 1 { "fault" } else { "faults" };
    format!("{name} has {count} {noun}:\n{faults}")
}

fn environment() -> Environment {
    std::env::vars_os().collect()
}

/// The same for a process that serves: a file that sets nothing is one that is being written, or was on a full disk.
fn reread(file: &Path) -> Result<Loaded, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let sets = |line: &str| !line.trim_start().is_empty() && !line.trim_start().starts_with('#');
    let loaded = read(file)?;
    if text.lines().any(sets) { Ok(loaded) } else { Err(format!("{} sets nothing", file.display())) }
}

/// Nobody may be reading, and the pipe be full: that must not keep the program from ending.
fn fail(code: u8, message: impl Display) -> ExitCode {
    let (done, told) = std::sync::mpsc::channel();
    let message = format!("client-proxy: {message}");
    std::thread::spawn(move || {
        eprintln!("{message}");
        let _ = done.send(());
    });
    let _ = told.recv_timeout(LAST_WORDS);
    code.into()
}
