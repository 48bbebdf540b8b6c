//! The code interpreter of the template `code-interpreter-v1`, a process of its own in the sandbox: what E2B's SDKs
//! `e2b-code-interpreter` and `@e2b/code-interpreter` expect on port 49999 (`server`), in front of Jupyter kernels.
//!
//! Kernels are started and spoken for by `driver.py`, whose pipes `driver` holds: Jupyter's own wire is `ZeroMQ`, and
//! whoever has ipykernel has its client library, too. `python` finds out whether that is so before there is a
//! sandbox. All processes belong to the sandbox's tree: frozen, continued and ended with it. All files are in the
//! sandbox's folder.

mod contexts;
mod driver;
pub(super) mod python;
mod server;

use std::{
    fs, io,
    net::Ipv4Addr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use serde::{Deserialize, Serialize};

use self::{contexts::Contexts, driver::Driver, server::Server};
use crate::types::Secret;

/// The template's name, as the SDKs have it.
pub(super) const TEMPLATE: &str = "code-interpreter-v1";
/// Where the SDKs look for it.
const PORT: u16 = 49999;
/// Below the sandbox's folder: scripts, connection files, sockets.
const RUN: &str = "run/interpreter";

/// What the process is told, by a line of JSON on its stdin.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) ip: Ipv4Addr,
    /// The sandbox's file system.
    pub(super) folder: PathBuf,
    /// Where relative paths begin, below the folder.
    pub(super) home: PathBuf,
    pub(super) access_token: String,
    pub(super) python: PathBuf,
}

/// Serves until the sandbox ends.
pub(super) fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("no usable order")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(order))
}

async fn serve(order: Order) -> anyhow::Result<()> {
    let address = (order.ip, PORT);
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {}:{PORT}", order.ip))?;
    let listener = listener.tap_io(super::without_delay);
    let run = prepare(&order.folder).context("no folder for the interpreter")?;
    let home = order.folder.join(&order.home);
    let (driver, ended) = Driver::start(&order.python, &run, &home)?;
    let contexts = Arc::new(Contexts::new(driver, order.folder, order.home));
    // The kernel that most code will ask for starts before it is asked for.
    contexts.start_default();
    let server = Server { contexts, token: Secret::new(&order.access_token) };
    tokio::select! {
        outcome = async { axum::serve(listener, server::router(server)).await } => Ok(outcome?),
        // Its answers are ended already: nothing can be done without it.
        why = ended => anyhow::bail!("the driver of the kernels ended: {why}"),
    }
}

/// An empty folder with the scripts; what an earlier life of the sandbox left there goes.
fn prepare(folder: &Path) -> io::Result<PathBuf> {
    let run = folder.join(RUN);
    super::remove::remove(&run)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&run)?;
    fs::write(run.join("kernel.py"), include_str!("kernel.py"))?;
    fs::write(run.join("driver.py"), include_str!("driver.py"))?;
    Ok(run)
}
