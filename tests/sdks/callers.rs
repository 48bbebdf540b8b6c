//! One process for each language, in which its SDK does what it is told, call by call.

use std::{collections::BTreeSet, fs, net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    installed::{Installed, NEWEST},
    names::with_hosts,
};

/// No call takes longer, with the start of the process, on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// What became of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct Outcome {
    /// What it returned.
    #[serde(default)]
    pub(crate) value: Value,
    /// The class of what it raised, then its bases; empty if it returned.
    #[serde(default)]
    pub(crate) error: Vec<String>,
    #[serde(default)]
    pub(crate) message: String,
}

/// A process that calls; ended when dropped.
pub(crate) struct Caller {
    pub(crate) language: &'static str,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
    _child: Child,
    _hosts: Arc<NamedTempFile>,
}

impl Caller {
    /// Both of them, with the API here; all these names mean this machine to them.
    pub(crate) async fn all(api: SocketAddr, names: &BTreeSet<&str>) -> [Self; 2] {
        let installed = Installed::get(&NEWEST).await;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdks");
        let hosts = NamedTempFile::new().expect("a file");
        let line = names.iter().fold("127.0.0.1 localhost".to_owned(), |line, name| line + " " + name);
        fs::write(&hosts, line + "\n").expect("a file");
        let hosts = Arc::new(hosts);
        let mut python = with_hosts(hosts.path(), &installed.python);
        python.arg(scripts.join("caller.py"));
        let mut javascript = with_hosts(hosts.path(), "node");
        javascript.arg(scripts.join("caller.mjs")).current_dir(&installed.modules);
        [("python", python), ("javascript", javascript)]
            .map(|(language, command)| Self::start(language, command, api, hosts.clone()))
    }

    fn start(language: &'static str, mut command: Command, api: SocketAddr, hosts: Arc<NamedTempFile>) -> Self {
        let mut child = command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("E2B_API_KEY", format!("e2b_{:040}", 0))
            .env("E2B_API_URL", format!("http://{api}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{language}: {error}"));
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { language, to, from, _child: child, _hosts: hosts }
    }

    /// Has the SDK do this with the sandbox, to which this URL leads, and hears what became of it.
    pub(crate) async fn call(&mut self, url: &str, sandbox: &str, operation: &str) -> Outcome {
        let line = format!("{}\n", json!([url, sandbox, operation]));
        self.to.write_all(line.as_bytes()).await.expect("a process that reads");
        let answer = timeout(LIMIT, self.from.next_line()).await.expect("an outcome in time").expect("a pipe");
        let answer = answer.unwrap_or_else(|| panic!("{} has ended at {line}", self.language));
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{}, {error}: {answer}", self.language))
    }
}
