//! The pipes of `driver.py`: calls by number, answers line by line, never more of them than their readers take.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, Command},
    sync::{OwnedSemaphorePermit, mpsc},
};

use super::{answers::Answers, prepare, python::Found};

/// Longer than any line of the driver, which bounds them itself.
const LINE_MAX: u64 = 256 << 20;

/// How drivers are started.
pub(super) struct Launch {
    /// The sandbox's file system.
    pub(super) folder: PathBuf,
    pub(super) python: Found,
}

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
    _place: Option<Place>,
}

/// Among the executions. It is given back when the driver has ended the call and its answer is read.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

pub(super) enum Line {
    Text(Bytes),
    End,
}

impl Driver {
    pub(super) fn start(launch: &Launch) -> anyhow::Result<Arc<Self>> {
        let command = prepare(&launch.folder, &launch.python).context("no folder for the interpreter")?;
        let mut child = Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the interpreter cannot be started")?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).context("no pipes")?;
        let (orders, todo) = mpsc::unbounded_channel();
        let driver = Arc::new(Self { orders, calls: Mutex::default() });
        tokio::spawn(write(stdin, todo));
        let reader = driver.clone();
        tokio::spawn(async move {
            let read = reader.read(stdout).await;
            reader.give_up();
            let _ = child.start_kill();
            match read.and(child.wait().await) {
                Ok(status) => eprintln!("the code interpreter's driver has ended: {status}"),
                Err(error) => eprintln!("the code interpreter's driver has ended: {error}"),
            }
        });
        Ok(driver)
    }

    /// Whether it has ended, and all its contexts with it.
    pub(super) fn is_over(&self) -> bool {
        self.calls().over
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, order: &Value) {
        let mut line = order.to_string().into_bytes();
        line.push(b'\n');
        let _ = self.orders.send(line);
    }

    /// Has the driver do it. A place is given for code that is to run.
    pub(super) fn call(self: &Arc<Self>, mut order: Value, place: Option<OwnedSemaphorePermit>) -> Answers {
        let (sender, lines) = mpsc::unbounded_channel();
        let place = place.map(Arc::new);
        let number = {
            let mut calls = self.calls();
            calls.last += 1;
            let number = calls.last;
            if !calls.over {
                calls.open.insert(number, Call { lines: sender, _place: place.clone() });
            }
            number
        };
        order["call"] = json!(number);
        self.send(&order);
        Answers::new(self.clone(), number, lines, place)
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
