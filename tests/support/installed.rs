//! What tests take from the registries of Python and JavaScript, in the versions pinned beside them. Installed once for
//! these pins, below cargo's target directory; what is there already is taken.
#![allow(dead_code, reason = "each test takes its part")]

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::timeout;

/// What is installed.
pub(crate) struct Pins {
    name: &'static str,
    requirements: &'static str,
    javascript: Option<Package>,
}

struct Package {
    package: &'static str,
    lock: &'static str,
}

/// E2B's SDKs.
pub(crate) const NEWEST: Pins = Pins {
    name: "sdks",
    requirements: include_str!("../sdks/requirements.txt"),
    javascript: Some(Package {
        package: include_str!("../sdks/package.json"),
        lock: include_str!("../sdks/package-lock.json"),
    }),
};

/// Their last generation that called the first version of the control API.
pub(crate) const OLD: Pins = Pins {
    name: "sdks",
    requirements: include_str!("../sdks/old/requirements.txt"),
    javascript: Some(Package {
        package: include_str!("../sdks/old/package.json"),
        lock: include_str!("../sdks/old/package-lock.json"),
    }),
};

/// A Python that has ipykernel, and E2B's SDK.
pub(crate) const KERNEL: Pins =
    Pins { name: "interpreter", requirements: include_str!("../interpreter/requirements.txt"), javascript: None };

/// One step of the installation, on a busy machine and a slow line.
const LIMIT: Duration = Duration::from_mins(5);

/// Where it is.
pub(crate) struct Installed {
    /// The interpreter that knows Python's part.
    pub(crate) python: PathBuf,
    /// Below which Node finds JavaScript's.
    pub(crate) modules: PathBuf,
}

impl Installed {
    /// Finds or installs it, one process at a time.
    pub(crate) async fn get(pins: &Pins) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let lock = File::create(place.join(format!("{}.lock", pins.name))).expect("a file");
        let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.expect("no panic");
        let _locked = locked.expect("a lock");
        let home = place.join(format!("{}-{:016x}", pins.name, pins.mark()));
        let this = Self { python: home.join("python/bin/python"), modules: home.join("javascript") };
        let complete = home.join("complete");
        if !complete.exists() {
            // What is left of an installation that was broken off.
            let _ = fs::remove_dir_all(&home);
            fs::create_dir_all(&home).expect("a folder");
            tokio::join!(install_python(&home, pins.requirements), this.install_javascript(pins.javascript.as_ref()));
            File::create(complete).expect("a file");
        }
        this
    }

    async fn install_javascript(&self, wanted: Option<&Package>) {
        let Some(Package { package, lock }) = wanted else { return };
        fs::create_dir_all(&self.modules).expect("a folder");
        fs::write(self.modules.join("package.json"), package).expect("a file");
        fs::write(self.modules.join("package-lock.json"), lock).expect("a file");
        runs(&self.modules, "npm", "ci --ignore-scripts --no-audit --no-fund").await;
    }
}

async fn install_python(home: &Path, requirements: &str) {
    fs::write(home.join("requirements.txt"), requirements).expect("a file");
    runs(home, "python3", "-m venv python").await;
    let pip = "-m pip install --quiet --disable-pip-version-check --no-input --no-deps -r requirements.txt";
    runs(home, "python/bin/python", pip).await;
}

impl Pins {
    /// Other pins, or another Python: another place.
    fn mark(&self) -> u64 {
        let version = Command::new("python3").arg("--version").output();
        let version = version.expect("python3: sudo apt-get install python3 python3-venv").stdout;
        let mut parts = vec![self.requirements.as_bytes()];
        parts.extend(self.javascript.iter().flat_map(|wanted| [wanted.package.as_bytes(), wanted.lock.as_bytes()]));
        parts.push(&version);
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        hasher.finish()
    }
}

/// Runs it to its end, in the environment of this test: it may name a mirror.
async fn runs(folder: &Path, program: &str, arguments: &str) {
    let path = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = tokio::process::Command::new(path);
    command.args(arguments.split(' ')).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(LIMIT, command.output()).await.unwrap_or_else(|_| panic!("{program} takes too long"));
    let output = ended
        .unwrap_or_else(|error| panic!("{program}: {error}: sudo apt-get install nodejs npm python3 python3-venv"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&said));
}
