//! The real program as a process of its own: signals, exit code, and what it writes.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::{PATIENCE, control_plane::KEY, eventually, kinds};

const ANYWHERE: &str =
    "server.listen = [\"127.0.0.1:0\"]\nhealth.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"";

const PROGRAM: &str = env!("CARGO_BIN_EXE_client-proxy");

/// A running client-proxy; ended when dropped.
pub struct Binary {
    child: Child,
    file: NamedTempFile,
    pub address: SocketAddr,
    pub health: SocketAddr,
    pub admin: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    access_lines_read: usize,
    /// Keeps the pipe open, also when it reads no more.
    reader: Option<JoinHandle<BufReader<ChildStderr>>>,
    /// Closed when it reads no more.
    reads: Receiver<()>,
}

impl Binary {
    /// Starts with this configuration, without its listeners: they are free loopback ports.
    pub async fn start(toml: &str) -> Self {
        Self::start_in(toml, &[]).await
    }

    /// The same in an environment of these variables and no others.
    pub async fn start_in(toml: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.env_clear().envs(environment.iter().copied());
        Self::spawn(toml, command, true).await
    }

    /// The same, started by a shell that does this first.
    pub async fn start_after(first: &str, toml: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.env_clear().args(["-c", &format!("{first}\nexec \"$0\" \"$@\""), PROGRAM]);
        Self::spawn(toml, command, true).await
    }

    /// The same; after the line that says that it serves, nobody reads what it writes.
    pub async fn start_unread(toml: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command.env_clear();
        Self::spawn(toml, command, false).await
    }

    async fn spawn(toml: &str, mut command: Command, read_on: bool) -> Self {
        let mut file = NamedTempFile::new().expect("a file");
        write!(file, "{ANYWHERE}\n{}{toml}", kinds::lines(toml)).expect("a file that takes it");
        let mut child = command
            .arg("--config")
            .arg(file.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, written) = (child.stderr.take().expect("a pipe"), lines.clone());
        let (reading, reads) = channel();
        let reader = std::thread::spawn(move || {
            let _reading = reading;
            let mut stderr = BufReader::new(stderr);
            for line in stderr.by_ref().lines().map_while(Result::ok) {
                let last = !read_on && line.contains("serving");
                written.lock().expect("no panic").push(line);
                if last {
                    break;
                }
            }
            stderr
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut this = Self {
            child,
            file,
            address: nowhere,
            health: nowhere,
            admin: nowhere,
            lines,
            access_lines_read: 0,
            reader: Some(reader),
            reads,
        };
        eventually("it serves", async || this.line("serving").is_some()).await;
        let serving = this.line("serving").expect("just seen");
        let text = serving["addresses"].as_str().expect("addresses");
        let mut addresses = text.split(['[', ']', '(', ')', ' ', ',']).filter_map(|word| word.parse().ok());
        let mut next = || addresses.next().unwrap_or_else(|| panic!("not three addresses: {text}"));
        (this.address, this.health, this.admin) = (next(), next(), next());
        this
    }

    /// Another configuration in its file, without listeners; one that sets nothing stays so.
    pub fn configure(&self, toml: &str) {
        let listeners = if toml.contains('=') { ANYWHERE } else { "" };
        let kinds = if toml.contains('=') { kinds::lines(toml) } else { String::new() };
        std::fs::write(self.file.path(), format!("{listeners}\n{kinds}{toml}")).expect("a file that takes it");
    }

    /// The same, and it is told to read it: what it says of that.
    pub async fn reload(&self, toml: &str) -> Value {
        let told = || self.lines_of("configuration ");
        let before = told().len();
        self.configure(toml);
        self.signal(Signal::HUP);
        eventually("it has read its configuration again", async || told().len() > before).await;
        told().swap_remove(before)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Waits for its end.
    pub async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", async || {
            status = self.child.try_wait().expect("one's own child");
            status.is_some()
        })
        .await;
        let status = status.expect("just seen");
        // What it wrote last may not have been read yet. Nothing is ever sent: the reader ends with the process.
        let _ = self.reads.recv_timeout(PATIENCE);
        assert_eq!(status.signal(), None, "it did not end by itself: {}", self.stderr());
        status
    }

    /// All that it has written.
    pub fn stderr(&self) -> String {
        self.lines.lock().expect("no panic").join("\n")
    }

    /// The lines of its log.
    pub fn log(&self) -> Vec<Value> {
        let lines = self.lines.lock().expect("no panic").clone();
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The next access line.
    pub async fn access_line(&mut self) -> Value {
        let mut found = None;
        eventually("an access line", async || {
            let mut lines = self.log().into_iter().filter(|line| line["target"] == "access");
            found = lines.nth(self.access_lines_read);
            found.is_some()
        })
        .await;
        self.access_lines_read += 1;
        found.expect("just seen")
    }

    /// Ends it at once, but by signals: lines wait in a queue, and a kill would lose them. All that it has
    /// written.
    pub async fn last_words(mut self) -> String {
        self.signal(Signal::TERM);
        self.signal(Signal::INT);
        self.end().await;
        let reader = self.reader.take().expect("not yet joined");
        tokio::task::spawn_blocking(|| reader.join()).await.expect("no panic").expect("no panic");
        self.stderr()
    }

    /// Ends it as `last_words` does, or else by force.
    fn end_now(&mut self) {
        let runs = self.child.try_wait().expect("one's own child").is_none();
        if runs && !std::thread::panicking() {
            self.signal(Signal::TERM);
            self.signal(Signal::INT);
            // Nothing is ever sent: it ends as the reader does, and that with the process.
            let _ = self.reads.recv_timeout(PATIENCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has had so far, in KiB.
    pub fn peak_memory(&self) -> u64 {
        self.kib_of("VmHWM:")
    }

    /// The memory that it has now, in KiB.
    pub fn memory(&self) -> u64 {
        self.kib_of("VmRSS:")
    }

    /// The time for which a processor has worked for it so far, whatever else the machine does (proc(5), `schedstat`).
    pub fn work(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("its threads");
        let nanoseconds = tasks.map(|task| {
            let told = std::fs::read_to_string(task.expect("a thread").path().join("schedstat")).expect("its times");
            told.split(' ')
                .next()
                .and_then(|time| time.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no time: {told:?}"))
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    fn kib_of(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("this line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The first line whose message begins so.
    pub fn line(&self, message: &str) -> Option<Value> {
        self.lines_of(message).into_iter().next()
    }

    /// All of them.
    pub fn lines_of(&self, message: &str) -> Vec<Value> {
        let begins = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with(message));
        self.log().into_iter().filter(begins).collect()
    }
}

/// What tests call their secrets, whichever test it is.
const SECRETS: [&str; 3] = [KEY, "a5ecret", "t0ken"];

impl Drop for Binary {
    /// Whatever a test did: no secret of it was written.
    fn drop(&mut self) {
        self.end_now();
        if !std::thread::panicking() {
            // Also what waited in its queue, and what nobody has read yet.
            self.reader.take().map(JoinHandle::join).transpose().expect("no panic");
            let written = self.stderr();
            let line = written.lines().find(|line| SECRETS.iter().any(|secret| line.contains(secret)));
            assert_eq!(line, None, "a secret in the log");
        }
    }
}
