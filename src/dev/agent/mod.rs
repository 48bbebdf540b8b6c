//! Inside a sandbox: the root of its process tree. It serves envd, starts the template's application, and
//! takes the whole tree with it when the playground ends.

mod counter;
pub(crate) mod enter;
pub(crate) mod environment;

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use anyhow::Context as _;
use axum::serve::ListenerExt as _;
use rustix::process::{Signal, getpid, set_child_subreaper, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    envd::{
        self, Envd,
        children::{Children, Started},
        user::USER,
    },
    freeze, interpreter, remove,
};
use crate::types::Port;

/// What the agent says when it serves.
pub(crate) const READY: &str = "ready";
/// What it says when somebody else has its address.
pub(crate) const ADDRESS_TAKEN: &str = "address taken";
/// What it says, with the rest of how, when the template's application has ended.
pub(crate) const ENDED: &str = "application ended: ";

/// `client-proxy sandbox-agent`, hidden: started by the playground, of no use otherwise.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Role {
    /// The root of a sandbox; takes its order, a line of JSON, from stdin
    Root {
        /// For those who read `ps`; the order counts
        #[arg(long)]
        sandbox: String,
    },
    /// The application of the template `counter`
    Counter { address: SocketAddr },
    /// That of `code-interpreter-v1`; takes its order, a line of JSON, from stdin
    Interpreter,
    /// A program of the sandbox, or a template's
    Enter(enter::Args),
}

/// What a sandbox is to be. It goes through a pipe: arguments can be read by every user of the machine.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) ip: Ipv4Addr,
    /// Its file system.
    pub(crate) folder: PathBuf,
    pub(crate) access_token: String,
    pub(crate) application: Application,
    pub(crate) environment: BTreeMap<String, String>,
}

/// What runs beside envd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Application {
    Nothing,
    Counter,
    Interpreter(interpreter::Wanted),
    Command(String),
}

/// Runs until the sandbox ends. To be called on the main thread, outside any runtime.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.role {
        Role::Root { .. } => root(),
        Role::Counter { address } => {
            die_with_parent();
            counter::run(*address)
        }
        Role::Enter(args) => enter::run(args),
        Role::Interpreter => {
            die_with_parent();
            interpreter::run()
        }
    }
}

/// Should the agent be killed from inside its sandbox, its application does not stay behind.
fn die_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

fn root() -> anyhow::Result<()> {
    // A stopped agent must notice the end of the playground, too: it is continued, finds its lifeline
    // cut and ends the whole tree. A SIGKILL would take only itself and leave the stopped rest behind.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    set_child_subreaper(Some(getpid()))?;
    setsid().context("no session of its own")?;

    let mut lifeline = io::BufReader::new(io::stdin());
    let mut line = String::new();
    lifeline.read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line).context("no usable order")?;
    let folder = order.folder.clone();
    thread::Builder::new().name("lifeline".to_owned()).spawn(move || {
        let _ = io::copy(&mut lifeline.by_ref(), &mut io::sink());
        end(&folder);
    })?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(order))
}

/// The playground is gone, by whatever means.
fn end(folder: &Path) -> ! {
    freeze::kill_below_me();
    if let Err(error) = remove::remove(folder) {
        eprintln!("{}: files of a sandbox are left: {error}", folder.display());
    }
    // The playground's own folder goes with the last sandbox.
    if let Some(parent) = folder.parent() {
        let _ = std::fs::remove_dir(parent);
    }
    std::process::exit(0)
}

/// What whoever started the playground ignores, its programs would ignore, too: interrupts, in a shell's background;
/// hangups, by `nohup`. A signal that is caught here has its default again in a program (execve(2)).
fn heed_signals() -> io::Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()] {
        // Caught from now on, whether anybody looks or not.
        drop(signal(kind)?);
    }
    Ok(())
}

async fn serve(order: Order) -> anyhow::Result<()> {
    heed_signals()?;
    let address = SocketAddr::from((order.ip, Port::ENVD.get()));
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener.tap_io(super::without_delay),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            println!("{ADDRESS_TAKEN}");
            return Ok(());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot listen on {address}")),
    };
    let children = Arc::new(Children::default());
    if let Some(application) = start(&order, &children)? {
        tokio::spawn(tell_end(order.id.clone(), application));
    }
    let envd = Arc::new(Envd::new(&order, children.clone()).context("the sandbox's folder cannot be opened")?);
    tokio::spawn(async move { children.collect().await });
    let router = envd::router(envd);
    println!("{READY}");
    io::stdout().flush()?;
    axum::serve(listener, router).await?;
    Ok(())
}

fn start(order: &Order, children: &Children) -> anyhow::Result<Option<Started>> {
    let role = |name: &str| {
        let mut command = Command::new(program());
        command.arg0("client-proxy").arg("sandbox-agent").arg(name);
        command
    };
    let (mut command, mut told) = (role("interpreter"), None);
    match &order.application {
        Application::Nothing => return Ok(None),
        Application::Counter => {
            command = role("counter");
            command.arg(SocketAddr::from((order.ip, 8000)).to_string());
        }
        Application::Interpreter(wanted) => told = Some(interpreter::Order::of(order, wanted)),
        Application::Command(text) => {
            let home = Path::new("/").join(USER.home);
            command = enter::Args::new(&order.folder, &home, &USER, "sh".as_ref()).command();
            command.arg("-c").arg(text);
        }
    }
    let environment = environment::of_program(&USER, &environment::of_sandbox(order), &BTreeMap::new());
    command
        .env_clear()
        .envs(environment)
        .stdin(if told.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(io::stderr());
    let mut started = children.start(&mut command).context("the template's application cannot be started")?;
    if let Some((told, mut stdin)) = told.zip(started.child.stdin.take()) {
        stdin.write_all(&serde_json::to_vec(&told)?)?;
    }
    Ok(Some(started))
}

/// The running program, also when its file was replaced meanwhile.
pub(crate) fn program() -> PathBuf {
    std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into())
}

async fn tell_end(id: String, application: Started) {
    if let Ok(status) = application.exit.await {
        let how = describe(status);
        eprintln!("sandbox {id}: the template's application ended: {how}");
        // Whoever creates the sandbox may still wait for it.
        let _ = writeln!(io::stdout(), "{ENDED}{how}");
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "for an unknown reason".to_owned(),
    }
}
