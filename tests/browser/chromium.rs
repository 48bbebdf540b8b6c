//! Chromium without a window, as its users have it otherwise.

use std::{
    fs::File,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tempfile::TempDir;

use crate::support::PATIENCE;

/// A browser with a new profile that shows one page; ended when dropped, with all its processes.
pub(crate) struct Browser {
    child: Child,
    /// Profile and log.
    folder: TempDir,
}

impl Browser {
    /// Every name under `example.test` is this machine. It believes certificates of the key with this hash, and
    /// none that is not valid otherwise.
    pub(crate) fn open(url: &str, believed: Option<&str>) -> Self {
        let folder = TempDir::new().expect("a folder");
        let log = File::create(folder.path().join("log")).expect("a file");
        let mut command = Command::new("chromium");
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-breakpad", "--disable-dev-shm-usage", "--disable-extensions", "--enable-logging=stderr"])
            .arg("--host-resolver-rules=MAP *.example.test 127.0.0.1, MAP * ~NOTFOUND")
            .args(believed.map(|hash| format!("--ignore-certificate-errors-spki-list={hash}")))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(url)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        Self { child: command.spawn().expect("the program chromium"), folder }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        // The others are nobody's children here; what they still write would outlive the folder.
        let start = Instant::now();
        while test_kill_process_group(group).is_ok() && start.elapsed() < PATIENCE {
            sleep(Duration::from_millis(5));
        }
        if std::thread::panicking() {
            eprintln!("chromium said:\n{}", std::fs::read_to_string(self.log()).unwrap_or_default());
        }
    }
}
