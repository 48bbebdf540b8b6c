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

use anyhow::Context as _;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
};

use self::server::{Finder, Parts, Watchman};
use crate::{
    config::{self, Config, Loaded, LogFormat},
    control::{AnyCatalog, AnyResumer, install_tls_provider},
    edge::{
        admin, listener,
        watch::Patience,
        worker::{self, Tools},
    },
    forward::ListenerGuard,
    sandbox::{Limits, Policy, Resolver},
    shutdown::Shutdown,
    telemetry::{self, Metrics},
};

#[cfg(feature = "dev")]
mod dev;
mod server;

#[cfg(feature = "dev")]
pub use self::dev::dev;

/// A running proxy.
pub struct App {
    addresses: Addresses,
    shutdown: Shutdown,
    limits: config::Shutdown,
    /// Serves the admin pages and owns every connection to the control plane.
    control: Option<Runtime>,
    workers: Vec<JoinHandle<()>>,
}

/// Where a proxy listens; port 0 in the configuration has become a real one.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// For clients.
    pub proxy: Vec<SocketAddr>,
    /// For probes and scrapers.
    pub health: SocketAddr,
    /// For operators.
    pub admin: Option<SocketAddr>,
}

/// Threads for the control plane, the admin pages and timers: never on the data path.
const CONTROL_THREADS: usize = 2;
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once.
///
/// # Errors
/// An address that cannot be bound, or a resource that cannot be had.
pub fn run(loaded: Loaded) -> anyhow::Result<()> {
    // The last to be dropped: an error is in the log before it is told as the program's own.
    let _log = start_log(&loaded.config.log)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let app = App::start(loaded.config, None)?;
    let grace = app.limits.grace();
    tracing::info!(addresses = ?app.addresses, grace_seconds = grace.as_secs(), "serving; a platform must give this grace");
    app.until_told()
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
    /// Binds every address, then starts. `guard` judges listeners before they are dialled.
    ///
    /// # Errors
    /// An address that cannot be bound, or a resource that cannot be had. Nothing runs then.
    pub fn start(config: Config, guard: Option<Arc<dyn ListenerGuard>>) -> anyhow::Result<Self> {
        install_tls_provider();
        let bind = |address: SocketAddr| {
            let bound = listener::bind(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
            bound.with_context(|| format!("cannot listen on {address}"))
        };
        let proxy = config.server.listen.iter().map(|address| bind(*address)).collect::<Result<Vec<_>, _>>()?;
        let (health_address, health) = bind(config.health.listen)?;
        let admin = config.admin.listen.map(bind).transpose()?;

        let control = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(CONTROL_THREADS)
            .thread_name("control")
            .enable_all()
            .build()
            .context("cannot start the control runtime")?;
        let metrics = Metrics::new().context("cannot set up metrics")?;
        let shutdown = Shutdown::default();
        let finder: Arc<Finder> = Resolver::new(
            AnyCatalog::new(&config.catalog)?,
            AnyResumer::new(&config.resume)?,
            limits(&config),
            metrics.clone(),
            control.handle().clone(),
        );
        control.spawn(finder.clone().keep_house());
        control.spawn(upkeep(metrics.clone()));
        let reached = Arc::new(AtomicBool::new(false));
        control.spawn(probe(finder.clone(), reached.clone()));
        let watchman = Arc::new(Watchman {
            finder: finder.clone(),
            metrics: metrics.clone(),
            shutdown: shutdown.clone(),
            reached,
        });

        let parts = Parts::new(&config, guard, finder, metrics.clone(), &shutdown);
        let patience = Patience { head: config.server.header_read_timeout, idle: config.server.idle_timeout };
        let tools = Tools { patience, shutdown: shutdown.clone(), metrics };
        let count = match config.server.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let (mut inboxes, mut workers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count {
            let parts = parts.clone();
            let (inbox, worker) = worker::start(number, tools.clone(), move || parts.server())?;
            inboxes.push(inbox);
            workers.push(worker);
        }

        let addresses = Addresses {
            proxy: proxy.iter().map(|(address, _)| *address).collect(),
            health: health_address,
            admin: admin.as_ref().map(|(address, _)| *address),
        };
        let room = Arc::new(Semaphore::new(config.server.max_connections.min(Semaphore::MAX_PERMITS)));
        for (_, socket) in proxy {
            control.spawn(listener::accept(socket, inboxes.clone(), room.clone(), shutdown.clone()));
        }
        control.spawn(serve_http(health, admin::health(watchman.clone())));
        if let Some((_, socket)) = admin {
            control.spawn(serve_http(socket, admin::admin(watchman, config.admin.token.clone())));
        }
        Ok(Self { addresses, shutdown, limits: config.shutdown, control: Some(control), workers })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once.
    ///
    /// # Errors
    /// Signals cannot be listened for.
    pub fn until_told(mut self) -> anyhow::Result<()> {
        let Some(control) = self.control.take() else { return Ok(()) };
        let finished = control.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut told = async || {
                tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                }
            };
            tracing::info!(signal = told().await, "draining");
            tokio::select! {
                finished = self.drain() => std::io::Result::Ok(finished),
                signal = told() => {
                    tracing::warn!(signal, "a second signal: ending at once");
                    Ok(false)
                }
            }
        })?;
        tracing::info!(everything_finished = finished, "stopped");
        // First of all: whoever still waits must not take the loss of its flight for the control plane's fault.
        self.shutdown.cut().cancel();
        control.shutdown_background();
        Ok(())
    }

    /// Drains as after SIGTERM; whether everything ended in time.
    pub async fn drain(&self) -> bool {
        self.shutdown.drain(self.limits.drain_delay, self.limits.drain_timeout).await
    }
}

impl Drop for App {
    /// Ends at once. Threads end by themselves when nothing reaches them any more.
    fn drop(&mut self) {
        self.shutdown.closing().cancel();
        self.shutdown.cut().cancel();
        self.workers.clear();
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
    }
}

fn limits(config: &Config) -> Limits {
    let Config { cache, resume, .. } = config;
    Limits {
        policy: Policy {
            ttl: cache.ttl,
            stale_if_error: cache.stale_if_error,
            negative_ttl: cache.negative_ttl,
            max_held_per_sandbox: resume.max_held_per_sandbox,
        },
        max_entries: cache.max_entries,
        max_held: resume.max_held,
        hold_timeout: resume.hold_timeout,
        lookup_timeout: match &config.catalog {
            config::Catalog::Static(_) => Duration::from_secs(1),
            config::Catalog::Rest(rest) => rest.timeout,
        },
        call_timeout: resume.call_timeout,
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

async fn serve_http(socket: std::net::TcpListener, router: axum::Router) {
    let served = async { axum::serve(tokio::net::TcpListener::from_std(socket)?, router).await };
    if let Err(error) = served.await {
        tracing::error!(%error, "a listener for operators failed");
    }
}
