//! Programs of others: started, heard, ended.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

use crate::support::eventually;

/// No program takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// What became of a program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Asserts that it is content.
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The lines of stdout or stderr that begin so, without that.
    pub(crate) fn lines(&self, start: &str) -> Vec<&str> {
        let lines = self.out.lines().chain(self.err.lines());
        lines.filter_map(|line| line.trim().strip_prefix(start)).collect()
    }
}

/// A program that runs; ended when dropped.
pub(crate) struct Running {
    child: Child,
    out: Heard,
    err: Heard,
}

/// What it has written so far to one of its outputs.
struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Heard {
    fn by(mut pipe: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let heard = text.clone();
        let task = tokio::spawn(async move {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                heard.lock().expect("no panic").extend_from_slice(&buffer[..count]);
            }
        });
        Self { text, task }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no panic")).into_owned()
    }
}

impl Running {
    /// Starts it in an environment that names nothing but where programs are.
    pub(crate) fn start<S: AsRef<str>>(program: &str, arguments: &[S]) -> Self {
        Self::start_with(program, arguments, "")
    }

    /// The same; this is its input.
    pub(crate) fn start_with<S: AsRef<str>>(program: &str, arguments: &[S], input: &'static str) -> Self {
        let mut child = Command::new(program)
            .args(arguments.iter().map(AsRef::as_ref))
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let mut to = child.stdin.take().expect("a pipe");
        tokio::spawn(async move { to.write_all(input.as_bytes()).await });
        let out = Heard::by(child.stdout.take().expect("a pipe"));
        let err = Heard::by(child.stderr.take().expect("a pipe"));
        Self { child, out, err }
    }

    /// All that it has written so far.
    pub(crate) fn written(&self) -> String {
        self.out.text() + &self.err.text()
    }

    pub(crate) async fn writes(&self, text: &str) {
        eventually(&format!("it writes {text}"), async || self.written().contains(text)).await;
    }

    pub(crate) async fn end(mut self) -> Said {
        let Ok(status) = timeout(LIMIT, self.child.wait()).await else { panic!("no end: {}", self.written()) };
        for heard in [&mut self.out, &mut self.err] {
            timeout(LIMIT, &mut heard.task).await.expect("the end of a pipe").expect("no panic");
        }
        Said { code: status.expect("one's own child").code(), out: self.out.text(), err: self.err.text() }
    }
}

/// Runs it to its end.
pub(crate) async fn run<S: AsRef<str>>(program: &str, arguments: &[S]) -> Said {
    Running::start(program, arguments).end().await
}
