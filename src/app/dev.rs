//! The playground and a proxy in front of it, in one process: the proxy runs its production path.

use std::{io::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;

use super::{App, PlaygroundRules, catch_signals, descriptors, signals::Signals, start_log};
use crate::{
    config::{Config, Environment},
    dev::{Addresses, Options, Playground, demo},
    forward::{Judgement, ListenerGuard},
    telemetry::log::Log,
    types::SandboxId,
};

impl ListenerGuard for crate::dev::ListenerGuard {
    fn may_dial<'a>(&'a self, sandbox: &'a SandboxId, address: SocketAddr) -> Judgement<'a> {
        Box::pin(self.may_dial(sandbox, address))
    }
}

impl PlaygroundRules {
    /// Those of the proxy in front of it.
    pub fn of(playground: &Playground) -> Self {
        Self { guard: Arc::new(playground.listener_guard()), id_without_port: playground.id_without_port() }
    }
}

/// What threads may take at the end that do nothing more of use.
const LAST_THREADS: Duration = Duration::from_millis(200);

/// Serves the playground until SIGTERM or SIGINT, or plays the demo. Every sandbox is ended on the way out, and its
/// files are removed; a second signal leaves what is not removed then.
///
/// # Errors
/// An address that cannot be bound, or a step of the demo that was not as told.
pub fn dev(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Before there is a sandbox: none may outlive a signal.
    let (signals, hangup) = catch_signals(&runtime)?;
    let mut signals = signals.end_with_terminal(hangup);
    let playground = runtime.block_on(Playground::start(options))?;
    let folder = playground.folder().to_owned();
    // Until the very end.
    let mut log = None;
    let outcome = serve(options, &playground, &runtime, &mut signals, &mut log);
    runtime.block_on(async {
        tokio::select! {
            biased;
            // Who leaves before anything was ended leaves it to the sandboxes themselves.
            () = signals.told_twice() => {
                let folder = folder.exists().then(|| tracing::field::display(folder.display()));
                tracing::warn!(folder, "a second signal: leaving at once, and what is not removed where it is");
            }
            () = playground.shutdown() => {}
        }
    });
    runtime.shutdown_timeout(LAST_THREADS);
    outcome
}

fn serve(
    options: &Options,
    playground: &Playground,
    runtime: &Runtime,
    signals: &mut Signals,
    log: &mut Option<Log>,
) -> anyhow::Result<()> {
    let environment: Environment = std::env::vars_os().collect();
    let mut loaded = Config::load(playground.proxy_config()?.as_bytes(), &environment)
        .map_err(|faults| anyhow::anyhow!("the playground's configuration and CLIENT_PROXY__ variables:\n{faults}"))?;
    only_loopback(&loaded.config)?;
    if options.demo {
        // The story tells itself; a line per request would drown it.
        loaded.config.log.filter = "warn".into();
    }
    *log = Some(start_log(&loaded.config.log)?);
    descriptors::raise(&loaded.config);
    let app = App::start(loaded, Some(PlaygroundRules::of(playground)))?;
    let bound = app.addresses();
    let at = Addresses {
        api: playground.api_addr(),
        proxy: *bound.proxy.first().context("a proxy without a listener")?,
        health: bound.health,
        admin: bound.admin.context("the playground has admin pages")?,
        tls: bound.tls.first().copied(),
    };
    playground.set_proxy_addr(at.proxy, at.tls);
    if options.demo {
        return runtime.block_on(async {
            tokio::select! {
                played = demo::play(&at, playground.api_key()) => played,
                signal = signals.told() => bail!("{signal} before the end of the story"),
            }
        });
    }
    // Nobody may be reading; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{}", runtime.block_on(playground.banner(&at)));
    app.until_told(signals)
}

/// The options take no other addresses, but the environment could have changed them since.
fn only_loopback(config: &Config) -> anyhow::Result<()> {
    let Config { server, health, admin, .. } = config;
    let proxy = server.listen.iter().map(|address| ("SERVER", *address));
    let tls = server.tls.listen.iter().map(|address| ("SERVER__TLS", *address));
    let admin = admin.listen.map(|address| ("ADMIN", address));
    for (section, address) in proxy.chain(tls).chain([("HEALTH", health.listen)]).chain(admin) {
        if !address.ip().is_loopback() {
            bail!(
                "CLIENT_PROXY__{section}__LISTEN is {address}: the playground gives whoever reaches it a shell, \
                 so it listens on loopback addresses only"
            );
        }
    }
    Ok(())
}
