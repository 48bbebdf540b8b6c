//! The code interpreter of the template `code-interpreter-v1`, a process of its own in the sandbox: what E2B's SDKs
//! `e2b-code-interpreter` and `@e2b/code-interpreter` expect on port 49999 (`server`, which `callers` guards), in
//! front of Jupyter kernels.
//!
//! Kernels are started and spoken for by `driver.py`, whose pipes `driver` holds: Jupyter's own wire is `ZeroMQ`, and
//! whoever has ipykernel has its client library, too. It runs as programs of the sandbox do, with the sandbox's folder
//! as root, and `contexts` starts another where one has ended. `python` finds out whether there is one before there
//! is a sandbox. All processes belong to the sandbox's tree: frozen, continued (`wakes`) and ended with it. All
//! files are in the sandbox's folder.

mod answers;
mod callers;
mod contexts;
mod driver;
pub(super) mod python;
mod server;
mod wakes;

use std::{
    fs,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use serde::{Deserialize, Serialize};

use self::{callers::Names, contexts::Contexts, driver::Launch, python::Found, server::Server, wakes::Wakes};
use super::{
    agent::{self, enter},
    envd::{files::Root, user::USER},
};
use crate::types::Secret;

/// The template's name, as the SDKs have it.
pub(super) const TEMPLATE: &str = "code-interpreter-v1";
/// Where the SDKs look for it.
const PORT: u16 = 49999;
/// Scripts, connection files, sockets, from the sandbox's root on: a name that no machine has there, so that programs
/// see the same.
const RUN: &str = ".interpreter";

/// What a playground's interpreters have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(super) python: Found,
    /// That of `--tls`.
    pub(super) domain: Option<String>,
}

/// What the process is told, by a line of JSON on its stdin.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    ip: Ipv4Addr,
    /// The sandbox's file system.
    folder: PathBuf,
    access_token: String,
    wanted: Wanted,
}

impl Order {
    pub(super) fn of(sandbox: &agent::Order, wanted: &Wanted) -> Self {
        Self {
            ip: sandbox.ip,
            folder: sandbox.folder.clone(),
            access_token: sandbox.access_token.clone(),
            wanted: wanted.clone(),
        }
    }
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
    let Wanted { python, domain } = order.wanted;
    let root = Root::new(&order.folder).context("the sandbox's folder cannot be opened")?;
    let launch = Launch { folder: order.folder, python, wakes: Wakes::watch()? };
    let contexts = Arc::new(Contexts::new(launch, root));
    // The kernel that most code will ask for starts before it is asked for.
    contexts.start_default();
    let server = Server { contexts, token: Secret::new(&order.access_token), names: Arc::new(Names::new(domain)) };
    Ok(axum::serve(listener, server::router(server)).await?)
}

/// Programs of the sandbox may put something else there meanwhile: nothing is written but new files of what was opened.
fn write_scripts(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = open(folder, flags, Mode::empty())?;
    super::remove::remove_at(&above, Path::new(RUN))?;
    mkdirat(&above, RUN, Mode::RWXU)?;
    let run = openat(&above, RUN, flags, Mode::empty())?;
    for (name, text) in [("kernel.py", include_str!("kernel.py")), ("driver.py", include_str!("driver.py"))] {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::File::from(openat(&run, name, new, Mode::RUSR | Mode::WUSR)?).write_all(text.as_bytes())?;
    }
    Ok(())
}

/// The command that becomes the driver. Its folder is empty but for the scripts: what an earlier one left there goes.
fn prepare(folder: &Path, python: &Found) -> io::Result<std::process::Command> {
    write_scripts(folder)?;
    let enter = enter::Args::new(folder, &Path::new("/").join(RUN), &USER, python.executable.as_os_str());
    let mut command = enter.with_folders(python.folders.clone()).command();
    // Code would be found beside the scripts, or written where Python is.
    command.arg("driver.py").envs(&python.environment).env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(base) = &python.user_base {
        command.env("PYTHONUSERBASE", base);
    }
    Ok(command)
}
