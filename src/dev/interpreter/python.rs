//! Whether there is a Python that can run kernels, asked before a sandbox is made.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, sync::OnceCell, time::timeout};

/// It imports two libraries, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// Says which program it really is: on the path there may be a script in front of it.
const QUESTION: &str = "import sys, ipykernel, jupyter_client.asynchronous; print(sys.executable)";
const NEEDED: &str = "ipykernel jupyter_client";
/// The end of what a Python says when it fails.
const WORDS_MAX: usize = 300;

/// The Python of a playground, asked once it is needed.
#[derive(Debug)]
pub(in crate::dev) struct Python {
    wanted: PathBuf,
    found: OnceCell<PathBuf>,
}

impl Python {
    /// The one that somebody named, or `python3` of the path.
    pub(in crate::dev) fn new(wanted: Option<&Path>) -> Self {
        Self { wanted: wanted.unwrap_or(Path::new("python3")).to_owned(), found: OnceCell::new() }
    }

    /// Its path. The error says what to install; it is not remembered: it may be installed meanwhile.
    pub(in crate::dev) async fn find(&self) -> Result<PathBuf, String> {
        self.found.get_or_try_init(|| ask(&self.wanted)).await.cloned()
    }
}

async fn ask(python: &Path) -> Result<PathBuf, String> {
    let fault = |why: &str| {
        let name = python.display();
        format!(
            "the template {} needs a Python with ipykernel, and {name} is none: {why}. Install what it needs: \
             {name} -m pip install {NEEDED} (or name another Python: client-proxy dev --python PATH)",
            super::TEMPLATE
        )
    };
    let mut command = Command::new(python);
    command.arg("-c").arg(QUESTION).stdin(Stdio::null()).kill_on_drop(true);
    let answer = timeout(LIMIT, command.output()).await;
    let output = answer.map_err(|_| fault("it does not answer"))?.map_err(|error| fault(&error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // The last line of a traceback is its message.
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last: String = last.unwrap_or("it fails without a word").trim().chars().take(WORDS_MAX).collect();
        return Err(fault(&last));
    }
    // A library may print something before.
    let path = String::from_utf8_lossy(&output.stdout).lines().last().map(PathBuf::from).unwrap_or_default();
    if path.is_absolute() { Ok(path) } else { Err(fault("it does not know where it is")) }
}
