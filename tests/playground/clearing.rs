//! Files are removed behind what ends a sandbox, and what a playground had to leave goes with the next one.

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
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

/// A folder that is filled faster than it is emptied, wherever it is moved: its removal does not end. Until this is
/// dropped.
struct Filling {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Filling {
    fn of(folder: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let begin = |number: usize| {
            let (over, held) = (over.clone(), File::open(folder).expect("a folder"));
            let by_handle = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
            // Some ten thousand to begin with.
            for file in 0..6000 {
                fs::write(by_handle.join(format!("{number}-{file}")), "").expect("written");
            }
            thread::spawn(move || {
                for file in (0..6000).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    // Whether it is there yet or not.
                    let _ = File::create(by_handle.join(format!("{number}-{file}")));
                }
                drop(held);
            })
        };
        let threads = (0..3).map(begin).collect();
        Self { over, threads }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }
}

/// In memory, where files are made and removed fast.
fn place() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder")
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_gone_before_its_files_are_and_nobody_finds_them() {
    let place = place();
    let program = start_in(&place, &[]).await;
    let sandbox = program.api().sleeper("base").await;
    let above = folder_above(&sandbox, &place);
    let filling = Filling::of(&above.join(&sandbox.id));
    kill(&sandbox).await;
    let left = names_in(&above);
    assert!(left.len() == 1 && !left[0].contains(&sandbox.id), "{left:?}");
    assert!(!names_in(&above.join(&left[0])).is_empty(), "the removal goes on");
    assert_eq!(sandbox.detail().await.told(), (404, "killed"));
    drop(filling);
    until("they are removed", async || names_in(&above).is_empty()).await;
    program.end().await;
    assert_eq!(names_in(place.path()), ["log"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_waits_for_no_removal_and_the_next_playground_does_the_rest() {
    let place = place();
    let mut program = start_in(&place, &[]).await;
    let api = program.address("control API");
    let sandbox = program.api().sleeper("base").await;
    let above = folder_above(&sandbox, &place);
    let filling = Filling::of(&above.join(&sandbox.id));
    kill(&sandbox).await;
    program.signal(Signal::INT);
    until("it is ending", async || TcpStream::connect(api).await.is_err()).await;
    assert!(program.child().try_wait().expect("one's own child").is_none(), "the first waits");
    program.signal(Signal::INT);
    until("it ends", async || program.child().try_wait().expect("one's own child").is_some()).await;
    assert_eq!(program.child().wait().expect("ended").code(), Some(0));
    assert_eq!(names_in(&above).len(), 1, "what it was at is left");
    let log = fs::read_to_string(place.path().join("log")).expect("a log");
    let told = log.lines().any(|line| line.contains("second signal") && line.contains(&above.display().to_string()));
    assert!(told, "{log}");
    drop(filling);
    let next = start_in(&place, &[]).await;
    until("it is removed", async || !above.exists()).await;
    next.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_a_killed_playground_goes_with_the_next_one_and_no_other() {
    let place = place();
    let tls = ["--tls", "127.0.0.1:0"];
    let (mut killed, lives) = (start_in(&place, &tls).await, start_in(&place, &tls).await);
    killed.child().kill().and_then(|()| killed.child().wait()).expect("killed");
    let folder = |program: &Program| program.file("SSL_CERT_FILE").parent().expect("a folder").to_owned();
    assert!(folder(&killed).exists());
    let next = start_in(&place, &[]).await;
    until("it is removed", async || !folder(&killed).exists()).await;
    next.end().await;
    let told = lives.domain().send("GET", "api", "/health", serde_json::Value::Null, &[]).await;
    assert_eq!((told.status.as_u16(), folder(&lives).exists()), (200, true));
    lives.end().await;
    assert_eq!(names_in(place.path()), ["log"]);
}
