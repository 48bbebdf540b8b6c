//! The real binary, for what concerns the whole process: its log, its memory, its environment.

use std::{net::SocketAddr, process::Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};

use super::PATIENCE;

/// A proxy in a process of its own, on free loopback ports; ends when dropped.
pub struct Binary {
    pub address: SocketAddr,
    pub health: SocketAddr,
    pub admin: SocketAddr,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    _directory: TempDir,
}

impl Binary {
    pub async fn start(toml: &str, environment: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("proxy.toml");
        std::fs::write(&file, toml).expect("written");
        let anywhere = "127.0.0.1:0";
        let mut child = Command::new(env!("CARGO_BIN_EXE_client-proxy"))
            .env_clear()
            .env("CLIENT_PROXY__SERVER__LISTEN", format!("[\"{anywhere}\"]"))
            .env("CLIENT_PROXY__HEALTH__LISTEN", anywhere)
            .env("CLIENT_PROXY__ADMIN__LISTEN", anywhere)
            .envs(environment.iter().copied())
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (sender, mut lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = stderr.next_line().await {
                let _ = sender.send(line);
            }
        });
        let serving = loop {
            let line = timeout(PATIENCE, lines.recv()).await.expect("a line in time").expect("it runs");
            if line.contains("serving") {
                break line;
            }
        };
        let addresses: Vec<SocketAddr> = serving
            .split(|char: char| !(char.is_ascii_digit() || matches!(char, '.' | ':')))
            .filter_map(|word| word.parse().ok())
            .collect();
        let [address, health, admin] = addresses[..] else { panic!("three addresses: {serving}") };
        Self { address, health, admin, child, lines, _directory: directory }
    }

    /// The next access line; other lines are passed over.
    pub async fn access_line(&mut self) -> Value {
        loop {
            let line = timeout(PATIENCE, self.lines.recv()).await.expect("a line in time").expect("it runs");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line["target"] == "access" {
                return line;
            }
        }
    }

    /// Ends it; all its lines that were not read yet.
    pub async fn last_words(mut self) -> Vec<String> {
        self.child.kill().await.expect("it ran");
        let mut lines = Vec::new();
        while let Some(line) = timeout(PATIENCE, self.lines.recv()).await.expect("an end in time") {
            lines.push(line);
        }
        lines
    }

    /// The most memory that it has had so far, in KiB.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().expect("it runs")));
        let status = status.expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}
