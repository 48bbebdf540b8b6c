//! The pipes of `driver.py`: calls by number, answers line by line, never more of them than their readers take.

use std::{
    collections::HashMap,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, Command},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
};

/// Longer than any line of the driver, which bounds them itself.
const LINE_MAX: u64 = 256 << 20;
/// Bytes of an answer after which the driver is told that they were taken.
const TOLD_EVERY: usize = 64 << 10;

/// The driver is gone, and this answer's end with it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the interpreter has ended")]
pub(super) struct Lost;

/// The way to the driver.
pub(super) struct Driver {
    orders: mpsc::UnboundedSender<Vec<u8>>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    last: u64,
    /// Those that the driver has not ended, also if nobody waits any more.
    open: HashMap<u64, Call>,
    over: bool,
}

struct Call {
    lines: mpsc::UnboundedSender<Line>,
    _permit: Option<OwnedSemaphorePermit>,
}

enum Line {
    Text(Bytes),
    End,
}

impl Driver {
    /// Starts it; the second value resolves when it has ended, to the reason.
    pub(super) fn start(
        python: &Path,
        folder: &Path,
        home: &Path,
    ) -> anyhow::Result<(Arc<Self>, impl Future<Output = String> + use<>)> {
        let mut child = Command::new(python)
            .arg(folder.join("driver.py"))
            .arg(folder)
            .env("SANDBOX_HOME", home)
            // It would be found beside the scripts.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", python.display()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).context("no pipes")?;
        let (orders, todo) = mpsc::unbounded_channel();
        let driver = Arc::new(Self { orders, calls: Mutex::default() });
        tokio::spawn(write(stdin, todo));
        let (told, ended) = oneshot::channel();
        let reader = driver.clone();
        tokio::spawn(async move {
            let read = reader.read(stdout).await;
            reader.give_up();
            let _ = child.start_kill();
            let why = match read.and(child.wait().await) {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let _ = told.send(why);
        });
        Ok((driver, async move { ended.await.unwrap_or_default() }))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, order: &Value) {
        let mut line = order.to_string().into_bytes();
        line.push(b'\n');
        let _ = self.orders.send(line);
    }

    /// Has the driver do it. The permit is given back when the driver has ended the call.
    pub(super) fn call(self: &Arc<Self>, mut order: Value, permit: Option<OwnedSemaphorePermit>) -> Answers {
        let (sender, lines) = mpsc::unbounded_channel();
        let number = {
            let mut calls = self.calls();
            calls.last += 1;
            let number = calls.last;
            if !calls.over {
                calls.open.insert(number, Call { lines: sender, _permit: permit });
            }
            number
        };
        order["call"] = json!(number);
        self.send(&order);
        Answers { driver: self.clone(), number, lines, untold: 0, ended: false }
    }

    /// Until the driver ends.
    async fn read(&self, stdout: impl AsyncRead + Unpin) -> std::io::Result<()> {
        let mut from = BufReader::with_capacity(64 << 10, stdout);
        loop {
            let mut line = Vec::new();
            (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
            self.hear(line);
        }
    }

    fn hear(&self, line: Vec<u8>) {
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let Some(number) = str::from_utf8(&line[..digits]).ok().and_then(|digits| digits.parse().ok()) else {
            return;
        };
        let mut calls = self.calls();
        if line.get(digits) == Some(&b' ') {
            if let Some(call) = calls.open.get(&number) {
                let _ = call.lines.send(Line::Text(Bytes::from(line).slice(digits + 1..)));
            }
        } else if let Some(call) = calls.open.remove(&number) {
            let _ = call.lines.send(Line::End);
        }
    }

    fn give_up(&self) {
        let mut calls = self.calls();
        calls.over = true;
        calls.open.clear();
    }
}

async fn write(mut to: ChildStdin, mut todo: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = todo.recv().await {
        if to.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// What the driver answers to a call. Dropped before its end, it calls the call off.
pub(super) struct Answers {
    driver: Arc<Driver>,
    number: u64,
    lines: mpsc::UnboundedReceiver<Line>,
    /// Bytes taken of which the driver has not been told.
    untold: usize,
    ended: bool,
}

impl Answers {
    /// The next line, with its line break; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        if self.ended {
            return Ok(None);
        }
        match self.lines.recv().await {
            Some(Line::Text(line)) => {
                // As the driver counts: with the number and the space in front.
                self.untold += line.len() + self.number.to_string().len() + 1;
                if self.untold >= TOLD_EVERY {
                    self.driver.send(&json!({ "do": "taken", "call": self.number, "bytes": self.untold }));
                    self.untold = 0;
                }
                Ok(Some(line))
            }
            Some(Line::End) => {
                self.ended = true;
                Ok(None)
            }
            None => {
                self.ended = true;
                Err(Lost)
            }
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if !self.ended {
            self.driver.send(&json!({ "do": "cancel", "call": self.number }));
        }
    }
}
