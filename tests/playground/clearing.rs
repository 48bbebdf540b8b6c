//! Files are removed behind what ends a sandbox.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{net::TcpStream, time::timeout};

use crate::playground_support::{
    Sandbox,
    program::{Program, command},
    until,
};

async fn start_in(place: &TempDir, arguments: &[&str]) -> Program {
    let mut command = command(arguments);
    command.env("TMPDIR", place.path());
    let log = File::options().create(true).append(true).open(place.path().join("log")).expect("a file");
    command.stderr(Stdio::from(log));
    Program::run(command).await
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().expect("text")).collect()
}

/// The playground's, where the sandbox's is.
fn folder_above(sandbox: &Sandbox, place: &TempDir) -> PathBuf {
    let all = names_in(place.path()).into_iter().map(|name| place.path().join(name));
    all.into_iter().find(|above| above.join(&sandbox.id).exists()).expect("its folder")
}

/// Fails where it waits for what does not end.
async fn kill(sandbox: &Sandbox) {
    let killed = timeout(Duration::from_mins(1), sandbox.kill()).await;
    assert_eq!(killed.expect("an answer, whatever there is to remove").status, 204);
}

fn log_in(place: &TempDir) -> String {
    fs::read_to_string(place.path().join("log")).expect("a log")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_gone_before_its_files_are_and_a_second_signal_does_not_wait_for_them() {
    let place = tempfile::tempdir().expect("a folder");
    let mut program = start_in(&place, &["--remove-delay", "1h"]).await;
    let api = program.address("control API");
    let sandbox = program.api().sleeper("base").await;
    let above = folder_above(&sandbox, &place);
    kill(&sandbox).await;
    let (left, detail) = (names_in(&above), sandbox.detail().await);
    program.signal(Signal::INT);
    until("it is ending", async || TcpStream::connect(api).await.is_err()).await;
    let waits = program.child().try_wait().expect("one's own child").is_none();
    program.signal(Signal::INT);
    until("it ends", async || program.child().try_wait().expect("one's own child").is_some()).await;
    assert_eq!(program.child().wait().expect("ended").code(), Some(0));
    assert!(waits, "the first signal waits");
    assert!(left.len() == 1 && !left[0].contains(&sandbox.id), "{left:?}");
    assert_eq!(detail.told(), (404, "killed"));
    assert!(above.join(&left[0]).join("home/user").exists(), "what is not removed is left");
    let log = log_in(&place);
    let told = log.lines().any(|line| line.contains("second signal") && line.contains(&above.display().to_string()));
    assert!(told, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_an_ended_sandbox_go_while_the_playground_lives_and_its_folder_with_it() {
    let place = tempfile::tempdir().expect("a folder");
    let program = start_in(&place, &["--remove-delay", "1ms"]).await;
    let sandbox = program.api().sleeper("base").await;
    let above = folder_above(&sandbox, &place);
    kill(&sandbox).await;
    until("they are removed", async || names_in(&above).is_empty()).await;
    program.end().await;
    assert_eq!(names_in(place.path()), ["log"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_names_no_folder_where_there_was_no_sandbox() {
    let place = tempfile::tempdir().expect("a folder");
    let mut program = start_in(&place, &[]).await;
    // Both are there when it goes on.
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        program.signal(signal);
    }
    until("it ends", async || program.child().try_wait().expect("one's own child").is_some()).await;
    let log = log_in(&place);
    assert!(log.contains("second signal") && !log.contains("client-proxy-dev-"), "{log}");
}
