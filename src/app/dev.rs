//! The playground and a proxy in front of it, in one process: the proxy runs its production path.

use std::{io::Write as _, sync::Arc};

use anyhow::Context as _;

use super::{App, start_log};
use crate::{
    config::{Config, Environment},
    dev::{Addresses, Options, Playground, demo},
    forward::ListenerGuard,
    types::SandboxId,
};

impl ListenerGuard for crate::dev::ListenerGuard {
    fn may_dial(&self, sandbox: &SandboxId, address: std::net::SocketAddr) -> bool {
        self.may_dial(sandbox, address)
    }
}

/// Serves the playground until SIGTERM or SIGINT, or plays the demo. Every sandbox is ended on the way out.
///
/// # Errors
/// An address that cannot be bound, or a step of the demo that was not as told.
pub fn dev(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let playground = runtime.block_on(Playground::start(options))?;
    let outcome = serve(options, &playground, &runtime);
    runtime.block_on(playground.shutdown());
    outcome
}

fn serve(options: &Options, playground: &Playground, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    let environment: Environment = std::env::vars_os().collect();
    let mut loaded = Config::load(playground.proxy_config().as_bytes(), &environment)
        .map_err(|faults| anyhow::anyhow!("the playground's configuration and CLIENT_PROXY__ variables:\n{faults}"))?;
    if options.demo {
        // The story tells itself; a line per request would drown it.
        loaded.config.log.filter = "warn".into();
    }
    let _log = start_log(&loaded.config.log)?;
    let app = App::start(loaded.config, Some(Arc::new(playground.listener_guard())))?;
    let bound = app.addresses();
    let at = Addresses {
        api: playground.api_addr(),
        proxy: *bound.proxy.first().context("a proxy without a listener")?,
        health: bound.health,
        admin: bound.admin.context("the playground has admin pages")?,
    };
    playground.set_proxy_addr(at.proxy);
    if options.demo {
        return runtime.block_on(demo::play(&at, playground.api_key()));
    }
    // Nobody may be reading; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{}", playground.banner(&at));
    app.until_told()
}
