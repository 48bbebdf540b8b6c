//! The roof: binds everything, then wires and runs. Only here do concrete adapters have names.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwap;
use tokio::{net::TcpListener, runtime::Runtime, signal::unix::Signal};
use tokio_util::sync::CancellationToken;

use self::{
    doors::Doors,
    reload::{Receivers, Settings},
    server::{Finder, Parts, introductions, limits, patience},
    signals::Signals,
};
use crate::{
    config::{self, Loaded, LogFormat},
    control::{AnyCatalog, AnyResumer},
    edge::{
        admin, listener, operators,
        room::Room,
        tls::Certificates,
        worker::{self, Tools},
    },
    sandbox::Resolver,
    shutdown::Shutdown,
    telemetry::{self, Metrics, Traces, Verbosity},
};

mod descriptors;
#[cfg(feature = "dev")]
mod dev;
mod doors;
#[doc(hidden)]
pub mod fuzzing;
mod playground;
mod reload;
mod server;
mod signals;

#[cfg(feature = "dev")]
pub use self::dev::dev;
pub use self::{playground::PlaygroundRules, reload::Source};
pub use crate::control::install_tls_provider;

/// A running proxy.
pub struct App {
    addresses: Addresses,
    shutdown: Shutdown,
    settings: Arc<Settings>,
    /// Serves the admin pages and owns every connection to the control plane.
    control: Option<Runtime>,
    workers: Vec<JoinHandle<()>>,
    traces: Option<Arc<Traces>>,
    /// Cancelled when a worker has died.
    broken: CancellationToken,
}

/// Where a proxy listens; port 0 in the configuration has become a real one.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// For clients that speak plain HTTP.
    pub proxy: Vec<SocketAddr>,
    /// For probes and scrapers.
    pub health: SocketAddr,
    /// For operators.
    pub admin: Option<SocketAddr>,
    /// For clients that speak TLS.
    pub tls: Vec<SocketAddr>,
}

/// Threads for the control plane, the admin pages and timers: never on the data path.
const CONTROL_THREADS: usize = 2;
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// How long the end waits for the collector; after a cut the platform's patience is nearly over.
const LAST_SPANS: Duration = Duration::from_secs(3);
const LAST_SPANS_CUT: Duration = Duration::from_secs(1);
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once. At SIGHUP the configuration is read
/// again from its `source`, and what can change meanwhile does.
///
/// # Errors
/// An address that cannot be bound, or a resource that cannot be had.
pub fn run(loaded: Loaded, source: Source) -> anyhow::Result<()> {
    // The last to be dropped: an error is in the log before it is told as the program's own.
    let _log = start_log(&loaded.config.log)?;
    for remark in &loaded.remarks {
        tracing::info!("{remark}");
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    descriptors::raise(&loaded.config);
    let control = control_runtime()?;
    // Before anything is listened on: whoever is served sees the drain.
    let (mut signals, hangups) = catch_signals(&control)?;
    let doors = Doors::open(&loaded.config)?;
    let grace = loaded.config.grace();
    let app = App::wire(control, doors, loaded, None)?;
    if let Some(control) = &app.control {
        control.spawn(reload::on_hangup(hangups, app.settings.clone(), source));
    }
    tracing::info!(addresses = ?app.addresses, grace_seconds = grace.as_secs(), "serving; a platform must give this grace");
    app.until_told(&mut signals)
}

fn control_runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .context("cannot start the control runtime")
}

fn catch_signals(runtime: &Runtime) -> anyhow::Result<(Signals, Signal)> {
    let _inside = runtime.enter();
    signals::catch().context("cannot listen for signals")
}

fn start_log(log: &config::Log) -> anyhow::Result<telemetry::log::Log> {
    let format = match log.format {
        LogFormat::Auto => None,
        LogFormat::Text => Some(telemetry::log::Format::Text),
        LogFormat::Json => Some(telemetry::log::Format::Json),
    };
    telemetry::log::start(format, &log.filter).context("log.filter")
}

impl App {
    /// Binds every address, then starts.
    ///
    /// # Errors
    /// An address that cannot be bound, or a resource that cannot be had. Nothing runs then.
    pub fn start(loaded: Loaded, playground: Option<PlaygroundRules>) -> anyhow::Result<Self> {
        let doors = Doors::open(&loaded.config)?;
        Self::wire(control_runtime()?, doors, loaded, playground)
    }

    fn wire(
        control: Runtime,
        doors: Doors,
        loaded: Loaded,
        playground: Option<PlaygroundRules>,
    ) -> anyhow::Result<Self> {
        let config = &loaded.config;
        install_tls_provider();
        // Listeners belong to this runtime.
        let inside = control.enter();
        let clients = doors.proxy.into_iter();
        let clients = clients.map(|(socket, door)| Ok((TcpListener::from_std(socket)?, door)));
        let clients = clients.collect::<std::io::Result<Vec<_>>>()?;
        let health = TcpListener::from_std(doors.health)?;
        let admin = doors.admin.map(TcpListener::from_std).transpose()?;
        drop(inside);

        let metrics = Metrics::new().context("cannot set up metrics")?;
        let traces = config.otlp.endpoint.as_ref().map(|collector| {
            let _inside = control.enter();
            Traces::start(collector, &metrics).map(Arc::new)
        });
        let traces = traces.transpose().context("cannot set up traces")?;
        let shutdown = Shutdown::default();
        let finder: Arc<Finder> = Resolver::new(
            AnyCatalog::new(&config.catalog, control.handle())?,
            AnyResumer::new(&config.resume, control.handle())?,
            limits(config),
            metrics.clone(),
            control.handle().clone(),
        );
        control.spawn(finder.clone().keep_house());
        control.spawn(upkeep(metrics.clone()));
        let reached = Arc::new(AtomicBool::new(false));
        control.spawn(probe(finder.clone(), reached.clone()));
        let vitals = Arc::new(admin::Vitals { metrics: metrics.clone(), shutdown: shutdown.clone(), reached });
        let certificates =
            Certificates::new(config.server.tls.certificates.clone(), metrics.clone()).context("cannot set up TLS")?;
        control.spawn(certificates.clone().watch());
        let pages = admin::sandboxes::pages(finder.clone())
            .merge(admin::wake::pages(finder.clone()))
            .merge(admin::certificates::pages(certificates.clone()));

        let names = if playground.is_some() { admin::only_local } else { std::convert::identity };
        let parts = Parts::new(config, playground, finder.clone(), metrics.clone(), traces.clone(), &shutdown);
        let patience = Arc::new(ArcSwap::from_pointee(patience(config)));
        let broken = CancellationToken::new();
        let count = match config.server.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let tools = Tools {
            patience: patience.clone(),
            introductions: Arc::new(introductions(config)),
            certificates: certificates.clone(),
            workers: count,
            shutdown: shutdown.clone(),
            metrics,
            broken: broken.clone(),
        };
        let (mut inboxes, mut workers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count {
            let parts = parts.clone();
            let (inbox, worker) = worker::start(number, tools.clone(), move || parts.server())?;
            inboxes.push(inbox);
            workers.push(worker);
        }

        let room = Room::new(config.server.max_connections);
        control.spawn(listener::accept(clients, inboxes, room.clone(), shutdown.clone()));
        let verbosity = Verbosity::new(config.log.filter.clone());
        let receivers = Receivers { site: parts.site, finder, patience, room, certificates, verbosity };
        let settings = Settings::new(loaded, receivers);
        control.spawn(operators::serve(health, names(admin::health(vitals.clone()))));
        if let Some(socket) = admin {
            let pages = pages.merge(admin::settings::pages(settings.clone()));
            control.spawn(operators::serve(socket, names(admin::admin(vitals, pages, settings.clone()))));
        }
        let addresses = doors.addresses;
        Ok(Self { addresses, shutdown, settings, control: Some(control), workers, traces, broken })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once.
    ///
    /// A worker that died ends the process too, as a failure: its connections are lost, whatever killed it is
    /// code that the others run as well, and a supervisor starts a process again, but nobody a thread.
    fn until_told(mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let Some(control) = self.control.take() else { return Ok(()) };
        let outcome = control.block_on(async {
            let (outcome, spans) = tokio::select! {
                (finished, spans) = self.drain_when_told(signals) => (Ok(finished), spans),
                () = self.broken.cancelled() => {
                    self.shutdown.drain(Duration::ZERO, Duration::ZERO).await;
                    (Err(anyhow!("a worker died: see the log")), LAST_SPANS_CUT)
                }
            };
            match &outcome {
                Ok(finished) => tracing::info!(everything_finished = finished, "stopped"),
                Err(error) => tracing::error!(%error, "ending"),
            }
            // First of all: whoever still waits must not take the loss of its flight for the control plane's fault.
            self.shutdown.cut_now();
            if let Some(traces) = self.traces.take() {
                let delivered = tokio::task::spawn_blocking(move || traces.end(spans));
                tokio::select! {
                    _ = delivered => {}
                    _ = signals.told() => {}
                }
            }
            outcome
        });
        control.shutdown_background();
        outcome.map(drop)
    }

    /// Whether everything ended in time, and how long the last spans may then take.
    async fn drain_when_told(&self, signals: &mut Signals) -> (bool, Duration) {
        // Not in the line below: what a filter leaves out is not even waited for.
        let signal = signals.told().await;
        tracing::info!(signal, "draining");
        tokio::select! {
            finished = self.drain() => (finished, if finished { LAST_SPANS } else { LAST_SPANS_CUT }),
            signal = signals.told() => {
                tracing::warn!(signal, "a second signal: ending at once");
                (false, Duration::ZERO)
            }
        }
    }

    /// Drains as after SIGTERM; whether everything ended in time.
    pub async fn drain(&self) -> bool {
        let config::Shutdown { drain_delay, drain_timeout } = self.settings.shutdown();
        self.shutdown.drain(drain_delay, drain_timeout).await
    }
}

impl Drop for App {
    /// Nothing new is served, what waits is told so, and every connection ends within a second or so. Threads
    /// end by themselves when nothing reaches them any more.
    fn drop(&mut self) {
        self.shutdown.close_now();
        self.shutdown.cut_now();
        self.workers.clear();
        if let Some(traces) = &self.traces {
            traces.end(Duration::ZERO);
        }
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
    }
}

async fn upkeep(metrics: Arc<Metrics>) {
    let mut tick = tokio::time::interval(METRICS_UPKEEP);
    loop {
        tick.tick().await;
        metrics.upkeep();
    }
}

/// Readiness waits until the catalog has answered once.
async fn probe(finder: Arc<Finder>, reached: Arc<AtomicBool>) {
    while let Err(error) = finder.probe().await {
        tracing::warn!(%error, "the catalog does not answer: not ready");
        tokio::time::sleep(PROBE_PAUSE).await;
    }
    reached.store(true, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Environment};

    #[test]
    fn a_dead_worker_ends_the_process_as_a_failure() {
        let text = b"catalog.kind = \"static\"\nserver.listen = [\"127.0.0.1:0\"]\nhealth.listen = \"127.0.0.1:0\"\nadmin.listen = \"\"";
        let loaded = Config::load(text, &Environment::default()).unwrap_or_else(|faults| panic!("{faults}"));
        let (control, doors) =
            (control_runtime().expect("a runtime"), Doors::open(&loaded.config).expect("free ports"));
        let (mut signals, _) = catch_signals(&control).expect("signals");
        let app = App::wire(control, doors, loaded, None).expect("a proxy");
        app.broken.cancel();
        assert!(app.until_told(&mut signals).expect_err("a failure").to_string().contains("a worker died"));
    }
}
