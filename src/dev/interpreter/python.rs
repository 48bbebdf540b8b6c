//! Whether there is a Python that can run kernels, asked before a sandbox is made.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{process::Command, sync::OnceCell, time::timeout};

use crate::dev::agent::environment;

/// It imports two libraries, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// Which program it really is (there may be a script in front of it, and sandboxes need not see what that needs), what
/// that has set for it, and where what it needs is.
const QUESTION: &str = r#"
import sys
# Nothing of the folder in which this is asked: that stands for itself in front (it is empty), and is what parts of
# PYTHONPATH mean that are no whole paths.
sys.path = [folder for folder in sys.path if folder.startswith("/")]
import os
parts = (os.environ.get("PYTHONPATH") or "/").split(":")
here = [os.path.abspath(part) for part in parts if not part.startswith("/")]
sys.path = [folder for folder in sys.path if folder not in here]
import json, site, ipykernel, jupyter_client.asynchronous
own = site.ENABLE_USER_SITE and os.path.isdir(site.getusersitepackages())
folders = [sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))]
folders += sys.path
folders = {*folders, *map(os.path.realpath, folders)}
folders = sorted(folder for folder in folders if os.path.isabs(folder) and os.path.isdir(folder))
inner = lambda folder: any(folder.startswith(os.path.join(other, "")) for other in folders)
text = lambda part: not any("\ud800" <= letter <= "\udfff" for letter in part)
print(json.dumps({
    "executable": sys.executable,
    "user_base": site.getuserbase() if own else None,
    "folders": [folder for folder in folders if not inner(folder)],
    "environment": {name: value for name, value in os.environ.items() if text(name + value)},
}))
"#;
const NEEDED: &str = "ipykernel jupyter_client";
/// Without it Python sets `LC_CTYPE` where no locale is set (PEP 538), as if a script had.
const AS_IT_IS: &str = "PYTHONCOERCECLOCALE";
/// What is a shell's own, a user's, ours, or tells where the playground was started (pyenv's, npm's and pdm's do).
const NOT_SET: [&str; 12] = [
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "HOME",
    "USER",
    "LOGNAME",
    "PYTHONUSERBASE",
    AS_IT_IS,
    "PYENV_DIR",
    "INIT_CWD",
    "PDM_RUN_CWD",
];
/// The end of what a Python says when it fails.
const WORDS_MAX: usize = 300;

/// The Python of a playground, asked once it is needed.
#[derive(Debug)]
pub(in crate::dev) struct Python {
    wanted: PathBuf,
    found: OnceCell<Found>,
}

/// What it says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::dev) struct Found {
    pub(super) executable: PathBuf,
    /// Where its user has libraries, if anywhere (`PYTHONUSERBASE`).
    pub(super) user_base: Option<PathBuf>,
    /// Programs, libraries: none of them below another.
    pub(super) folders: Vec<PathBuf>,
    /// Variables that a script in front of it has set.
    pub(super) environment: BTreeMap<String, String>,
}

impl Python {
    /// The one that somebody named, or `python3` of the path.
    pub(in crate::dev) fn new(wanted: Option<&Path>) -> Self {
        Self { wanted: wanted.unwrap_or(Path::new("python3")).to_owned(), found: OnceCell::new() }
    }

    /// The error says what to install; it is not remembered: it may be installed meanwhile.
    pub(in crate::dev) async fn find(&self) -> Result<Found, String> {
        self.found.get_or_try_init(|| ask(&self.wanted)).await.cloned()
    }
}

async fn ask(python: &Path) -> Result<Found, String> {
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
    // As kernels will have it, but for the home: there its user's libraries are.
    command
        .env_clear()
        .envs(environment::of_machine())
        .env(AS_IT_IS, "0")
        .envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
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
    let last = String::from_utf8_lossy(&output.stdout).lines().last().map(serde_json::from_str::<Found>);
    match last {
        Some(Ok(mut found)) if found.executable.is_absolute() => {
            found.environment.retain(|name, value| {
                let is_ours = environment::of_machine().any(|(known, ours)| known == name && ours == value.as_str());
                !is_ours && !NOT_SET.contains(&name.as_str()) && !environment::is_mark(name)
            });
            Ok(found)
        }
        _ => Err(fault("it does not know where it is")),
    }
}
