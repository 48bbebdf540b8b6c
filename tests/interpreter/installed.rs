//! A Python that has ipykernel and E2B's SDK, in the versions pinned beside this file. Installed once for these pins,
//! below cargo's target directory; what is there already is taken.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::timeout;

const REQUIREMENTS: &str = include_str!("requirements.txt");
/// One step of the installation, on a busy machine and a slow line.
const LIMIT: Duration = Duration::from_mins(5);

/// Finds or installs it, one process at a time.
pub(crate) async fn python() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let lock = File::create(place.join("interpreter.lock")).expect("a file");
    let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.expect("no panic");
    let _locked = locked.expect("a lock");
    let home = place.join(format!("interpreter-{:016x}", pins()));
    let complete = home.join("complete");
    if !complete.exists() {
        // What is left of an installation that was broken off.
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).expect("a folder");
        fs::write(home.join("requirements.txt"), REQUIREMENTS).expect("a file");
        runs(&home, "python3", "-m venv python").await;
        let pip = "-m pip install --quiet --disable-pip-version-check --no-input --no-deps -r requirements.txt";
        runs(&home, "python/bin/python", pip).await;
        File::create(complete).expect("a file");
    }
    home.join("python/bin/python")
}

/// Other pins, or another Python: another place.
fn pins() -> u64 {
    let version = Command::new("python3").arg("--version").output();
    let version = version.expect("python3: sudo apt-get install python3 python3-venv").stdout;
    let mut hasher = DefaultHasher::new();
    [REQUIREMENTS.as_bytes(), &version].hash(&mut hasher);
    hasher.finish()
}

/// Runs it to its end, in the environment of this test: it may name a mirror.
async fn runs(folder: &Path, program: &str, arguments: &str) {
    let path = if program.contains('/') { folder.join(program) } else { program.into() };
    let mut command = tokio::process::Command::new(path);
    command.args(arguments.split(' ')).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(LIMIT, command.output()).await.unwrap_or_else(|_| panic!("{program} takes too long"));
    let output = ended.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&said));
}
