//! The SDKs as their registries have them, in the versions pinned beside this file: the newest, and in `old/` the
//! last generation that called the first version of the control API. Installed once for these pins, below
//! cargo's target directory; what is there already is taken.

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
    requirements: &'static str,
    package: &'static str,
    lock: &'static str,
}

pub(crate) const NEWEST: Pins = Pins {
    requirements: include_str!("requirements.txt"),
    package: include_str!("package.json"),
    lock: include_str!("package-lock.json"),
};

#[cfg(feature = "dev")]
pub(crate) const OLD: Pins = Pins {
    requirements: include_str!("old/requirements.txt"),
    package: include_str!("old/package.json"),
    lock: include_str!("old/package-lock.json"),
};

/// One step of the installation, on a busy machine and a slow line.
const LIMIT: Duration = Duration::from_mins(5);

/// Where they are.
pub(crate) struct Installed {
    /// The interpreter that knows Python's.
    pub(crate) python: PathBuf,
    /// Below which Node finds JavaScript's.
    pub(crate) modules: PathBuf,
}

impl Installed {
    /// Finds or installs them, one process at a time.
    pub(crate) async fn get(pins: &Pins) -> Self {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let lock = File::create(place.join("sdks.lock")).expect("a file");
        let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.expect("no panic");
        let _locked = locked.expect("a lock");
        let home = place.join(format!("sdks-{:016x}", pins.mark()));
        let this = Self { python: home.join("python/bin/python"), modules: home.join("javascript") };
        let complete = home.join("complete");
        if !complete.exists() {
            // What is left of an installation that was broken off.
            let _ = fs::remove_dir_all(&home);
            this.install(pins, &home).await;
            File::create(complete).expect("a file");
        }
        this
    }

    async fn install(&self, pins: &Pins, home: &Path) {
        fs::create_dir_all(&self.modules).expect("a folder");
        fs::write(home.join("requirements.txt"), pins.requirements).expect("a file");
        fs::write(self.modules.join("package.json"), pins.package).expect("a file");
        fs::write(self.modules.join("package-lock.json"), pins.lock).expect("a file");
        let python = async {
            runs(home, "python3", &["-m", "venv", "python"]).await;
            let pip = "-m pip install --quiet --disable-pip-version-check --no-input --no-deps -r requirements.txt";
            runs(home, "python/bin/python", &pip.split(' ').collect::<Vec<_>>()).await;
        };
        let javascript = runs(&self.modules, "npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        tokio::join!(python, javascript);
    }
}

impl Pins {
    /// Other pins, or another Python: another place.
    fn mark(&self) -> u64 {
        let version = Command::new("python3").arg("--version").output();
        let version = version.expect("python3 and npm: sudo apt-get install nodejs npm python3-venv").stdout;
        let mut hasher = DefaultHasher::new();
        [self.requirements.as_bytes(), self.package.as_bytes(), self.lock.as_bytes(), &version].hash(&mut hasher);
        hasher.finish()
    }
}

/// Runs it to its end, in the environment of this test: it may name a mirror.
async fn runs(folder: &Path, program: &str, arguments: &[&str]) {
    let path = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = tokio::process::Command::new(path);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(LIMIT, command.output()).await.unwrap_or_else(|_| panic!("{program} takes too long"));
    let output = ended.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&said));
}
