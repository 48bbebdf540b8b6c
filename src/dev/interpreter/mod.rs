//! The code interpreter of the template `code-interpreter-v1`, a process of its own in the sandbox: what E2B's SDKs
//! `e2b-code-interpreter` and `@e2b/code-interpreter` expect on port 49999 (`server`, which `callers` guards), in
//! front of Jupyter kernels.
//!
//! Kernels are started and spoken for by `driver.py`, whose pipes `driver` holds: Jupyter's own wire is `ZeroMQ`, and
//! whoever has ipykernel has its client library, too. It runs as programs of the sandbox do, with the sandbox's folder
//! as root, and `contexts` starts another where one has ended. `python` finds out whether there is one before there
//! is a sandbox. All processes belong to the sandbox's tree: frozen, continued and ended with it; `client`
//! tells whom a pause has cut off. All files are in the sandbox's folder.

mod answers;
mod callers;
mod client;
mod contexts;
mod driver;
pub(super) mod python;
mod server;

use std::{
    fs,
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use rustix::{
    fs::{Mode, OFlags, mkdirat, open, openat, renameat},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use self::{callers::Names, client::Client, contexts::Contexts, driver::Launch, python::Found, server::Server};
use super::{
    agent::{self, enter},
    envd::{files::Root, user::USER},
    remove::remove_at,
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
        let mut wanted = wanted.clone();
        // What its creator wants counts.
        wanted.python.environment.retain(|name, _| !sandbox.environment.contains_key(name));
        Self { ip: sandbox.ip, folder: sandbox.folder.clone(), access_token: sandbox.access_token.clone(), wanted }
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
    let Wanted { python, domain } = order.wanted;
    let root = Root::new(&order.folder).context("the sandbox's folder cannot be opened")?;
    let launch = Launch { folder: order.folder, python };
    let contexts = Arc::new(Contexts::new(launch, root));
    // The kernel that most code will ask for starts before it is asked for.
    contexts.start_default();
    let server = Server { contexts, token: Secret::new(&order.access_token), names: Arc::new(Names::new(domain)) };
    let service = server::router(server).into_make_service_with_connect_info::<Client>();
    Ok(axum::serve(listener, service).await?)
}

/// Programs of the sandbox may put something else there meanwhile: nothing is written but new files of what was opened.
/// What was there is moved aside, since all calls wait for this, and its removal may take minutes.
fn write_scripts(folder: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = open(folder, flags, Mode::empty())?;
    let aside = PathBuf::from(format!("{RUN}-{:016x}", fastrand::u64(..)));
    match renameat(&above, RUN, &above, &aside) {
        Err(Errno::NOENT) => {}
        moved => {
            moved?;
            let above = above.try_clone()?;
            spawn_blocking(move || {
                if let Err(error) = remove_at(&above, &aside) {
                    eprintln!("the code interpreter: files of an earlier one are left: {error}");
                }
            });
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_full_folder_holds_no_start_up_and_is_removed_in_time() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join(RUN).join("full/of/folders")).expect("made");
        let names = || fs::read_dir(folder.path()).expect("a folder").count();
        let one_thread = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        let runtime = one_thread.expect("a runtime");
        let _within = runtime.enter();
        let (go, wait) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || wait.recv());
        write_scripts(folder.path()).expect("written");
        let run: Vec<_> = fs::read_dir(folder.path().join(RUN)).expect("a folder").flatten().collect();
        assert_eq!((run.len(), names()), (2, 2), "the scripts alone, and the other folder");
        go.send(()).expect("it waits");
        runtime.block_on(async {
            busy.await.expect("no panic").expect("told");
            // By the one thread, after the removal.
            spawn_blocking(|| ()).await.expect("no panic");
        });
        assert_eq!(names(), 1);
    }
}
