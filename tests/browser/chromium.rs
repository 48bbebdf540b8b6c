//! Chromium without a window, as its users have it otherwise.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::support::{PATIENCE, eventually};

/// A browser with a new profile that shows one page; ended when dropped, with all its processes.
pub(crate) struct Browser {
    child: Child,
    /// What it wrote, once the last of its processes has ended.
    log: Receiver<String>,
    profile: TempDir,
}

impl Browser {
    /// Every name under `example.test` is this machine, and there are no others. Certificates of the key with this
    /// hash are believed.
    pub(crate) fn open(url: &str, believed: Option<&str>) -> Self {
        let profile = TempDir::new().expect("a folder");
        let mut command = Command::new("chromium");
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-breakpad", "--disable-dev-shm-usage", "--disable-extensions", "--enable-logging=stderr"])
            .arg("--remote-debugging-port=0")
            .arg("--host-resolver-rules=MAP *.example.test 127.0.0.1, MAP * ~NOTFOUND")
            .args(believed.map(|hash| format!("--ignore-certificate-errors-spki-list={hash}")))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().expect("the program chromium");
        let mut stderr = child.stderr.take().expect("a pipe");
        let (ended, log) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            let _ = ended.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        Self { child, log, profile }
    }

    /// Where it may be told what to do.
    pub(crate) async fn devtools_port(&self) -> u16 {
        let file = self.profile.path().join("DevToolsActivePort");
        let mut port = None;
        eventually("it listens", async || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            // The second line is written after the first.
            port = text.split_once('\n').and_then(|(port, _)| port.parse().ok());
            port.is_some()
        })
        .await;
        port.expect("just seen")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        // Before the profile goes: none of them writes to it any more.
        let log = self.log.recv_timeout(PATIENCE).unwrap_or_default();
        if std::thread::panicking() {
            eprintln!("chromium said:\n{log}");
        }
    }
}
