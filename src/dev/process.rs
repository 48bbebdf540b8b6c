//! One sandbox as a process tree: started, frozen, continued, ended.

use std::{
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::unix::pipe,
    sync::oneshot,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    agent::{ADDRESS_TAKEN, Application, ENDED, Order, READY},
    freeze::{self, Frozen},
    proc_tree::{self, Process},
    reset,
    roots::{ROOTS, Root},
    sockets::{self, State},
};
use crate::types::Port;

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("somebody else has the sandbox's address")]
    AddressTaken,
    #[error("the sandbox did not start: {0}")]
    Failed(String),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What the agent says.
type Said = BufReader<pipe::Receiver>;
type Job = (Command, oneshot::Sender<io::Result<Root>>);

/// Starts processes from one thread that lives as long as the playground: the kernel tells a process of
/// the end of the *thread* that started it (prctl(2), `PR_SET_PDEATHSIG`), and those of a runtime's pool
/// come and go.
#[derive(Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
    program: PathBuf,
    /// A template's command may be one that never listens: the sandbox is ready without it then.
    command_wait: Duration,
}

impl Spawner {
    pub(crate) fn new(program: PathBuf, command_wait: Duration) -> io::Result<Self> {
        let (jobs, todo) = mpsc::channel::<Job>();
        thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            for (mut command, done) in todo {
                // If nobody waits any more, it ends.
                let _ = done.send(ROOTS.start(&mut command));
            }
        })?;
        Ok(Self { jobs, program, command_wait })
    }

    /// Returns when the sandbox serves.
    pub(crate) async fn start(&self, order: &Order) -> Result<Tree, StartError> {
        let mut command = Command::new(&self.program);
        command
            .arg0("client-proxy")
            .args(["sandbox-agent", "root", "--sandbox", &order.id])
            .env(freeze::MARK, &order.id)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for secret in secrets_in_environment() {
            command.env_remove(secret);
        }
        let (done, started) = oneshot::channel();
        let gone = || StartError::Failed("the playground is ending".to_owned());
        self.jobs.send((command, done)).map_err(|_| gone())?;
        let root = started.await.map_err(|_| gone())??;
        // From here on it ends with this, wherever this ends.
        let mut tree = Tree { ip: order.ip, root, said: None };
        let Some((mut lifeline, said)) = tree.root.pipes() else {
            return Err(StartError::Failed("it has no pipes".to_owned()));
        };
        let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
        line.push(b'\n');
        let lifeline =
            spawn_blocking(move || lifeline.write_all(&line).map(|()| lifeline)).await.map_err(io::Error::other)??;
        tree.root.hold(lifeline);
        let mut said = BufReader::new(pipe::Receiver::from_owned_fd(OwnedFd::from(said))?);
        let mut word = String::new();
        let outcome = match timeout(START_LIMIT, said.read_line(&mut word)).await {
            Ok(Ok(_)) if word.trim_end() == READY => {
                let limit = match order.application {
                    Application::Command(_) => self.command_wait,
                    Application::Nothing | Application::Counter | Application::Interpreter(_) => START_LIMIT,
                };
                match tree.wait_for_application(&order.application, &mut said, limit).await {
                    Ok(()) => {
                        tree.said = Some(said);
                        return Ok(tree);
                    }
                    Err(error) => error,
                }
            }
            Ok(Ok(_)) if word.trim_end() == ADDRESS_TAKEN => StartError::AddressTaken,
            Ok(Ok(_)) => StartError::Failed("it ended before it was ready".to_owned()),
            Ok(Err(error)) => error.into(),
            Err(_) => StartError::Failed("it was not ready in time".to_owned()),
        };
        tree.kill().await;
        Err(outcome)
    }
}

/// The playground's key opens a shell to whoever has it; sandboxes do not get it.
fn secrets_in_environment() -> impl Iterator<Item = std::ffi::OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name == "E2B_API_KEY" || name == "E2B_ACCESS_TOKEN" || name.starts_with("CLIENT_PROXY__")
    })
}

/// A running or frozen sandbox. Dropped, it ends with its files, some time later.
pub(crate) struct Tree {
    ip: Ipv4Addr,
    root: Root,
    said: Option<Said>,
}

impl Tree {
    pub(crate) fn root(&self) -> Process {
        self.root.process()
    }

    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Resolves when the root process has ended, however that came: nobody else holds its end of the
    /// pipe. To be asked once.
    pub(crate) fn root_ended(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut said = self.said.take()?;
        Some(async move {
            let _ = tokio::io::copy(&mut said, &mut tokio::io::sink()).await;
        })
    }

    pub(crate) async fn freeze(&self) -> io::Result<Frozen> {
        let root = self.root();
        spawn_blocking(move || freeze::freeze(root)).await?
    }

    pub(crate) async fn thaw(&self, frozen: Frozen) {
        let root = self.root();
        let _ = spawn_blocking(move || freeze::thaw(root, &frozen)).await;
    }

    pub(crate) async fn reset_connections(&self) -> usize {
        let (root, ip) = (self.root(), IpAddr::from(self.ip));
        let done = spawn_blocking(move || reset::reset_connections(root, ip)).await;
        done.unwrap_or_default()
    }

    /// Returns when no process of the sandbox is left.
    pub(crate) async fn kill(self) {
        let _ = spawn_blocking(move || self.root.end()).await;
    }

    /// Waits until it serves, has ended well, or has had its time. An error if it ended otherwise: who creates a
    /// sandbox hears that at once, and not from a port on which nobody listens.
    async fn wait_for_application(
        &self,
        application: &Application,
        said: &mut Said,
        limit: Duration,
    ) -> Result<(), StartError> {
        if matches!(application, Application::Nothing) {
            return Ok(());
        }
        let serves = async {
            tokio::select! {
                () = self.serves_or(|_| false) => return Ok(()),
                ended = ended(application, said) => ended?,
            }
            // It may have left a daemon behind, or nothing but the agent.
            self.serves_or(|tree| tree.len() < 2).await;
            Ok(())
        };
        timeout(limit, serves).await.unwrap_or(Ok(()))
    }

    async fn serves_or(&self, enough: fn(&[proc_tree::Stat]) -> bool) {
        loop {
            let root = self.root();
            let found = spawn_blocking(move || {
                let tree = proc_tree::live_tree(root);
                enough(&tree) || listens_beside_envd(&tree)
            });
            if found.await.unwrap_or(true) {
                return;
            }
            sleep(POLL).await;
        }
    }
}

/// Waits for the end of a template's application. A command may do its work and be done; what is to serve may not.
async fn ended(application: &Application, said: &mut Said) -> Result<(), StartError> {
    let mut line = String::new();
    said.read_line(&mut line).await?;
    let how = line.trim_end().strip_prefix(ENDED).unwrap_or("with its sandbox");
    if how == "exit code 0" && matches!(application, Application::Command(_)) {
        return Ok(());
    }
    let told = format!("its template's application ended: {how}. What it said is in the playground's log");
    Err(StartError::Failed(told))
}

fn listens_beside_envd(tree: &[proc_tree::Stat]) -> bool {
    let held = sockets::held_by(tree);
    sockets::listening().iter().any(|socket| {
        socket.state == State::Listening && socket.local.port() != Port::ENVD.get() && held.contains_key(&socket.inode)
    })
}
