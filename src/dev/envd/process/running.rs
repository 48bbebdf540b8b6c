//! A process from its start to its end: what it is given, what it says, when it is over.

use std::{
    io,
    os::fd::OwnedFd,
    process::{ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal};
use tokio::{io::AsyncReadExt as _, net::unix::pipe, sync::oneshot, time::timeout};

use super::{
    awake::awake_for,
    inlet::Inlet,
    messages::{Event, Output, ProcessConfig, Pty},
    outlets::{Heard, Outlets},
    terminal::Terminal,
};
use crate::dev::envd::{
    children::{Children, Started},
    rpc::Blob,
};

/// envd's.
const CHUNK: usize = 32 * 1024;

/// A process that was killed may leave others behind that hold its output open. What they say is waited for as
/// long as they talk.
const LAST_WORDS: Duration = Duration::from_millis(100);

pub(super) struct Running {
    pub(super) pid: Pid,
    pub(super) config: ProcessConfig,
    pub(super) tag: Option<String>,
    pub(super) outlets: Outlets,
    pub(super) input: Inlet,
    /// Chunks that were read, and that everybody has.
    read: AtomicUsize,
    told: AtomicUsize,
}

/// What is read of it.
pub(super) enum Source {
    Terminal(Arc<Terminal>),
    Pipes(pipe::Receiver, pipe::Receiver),
}

pub(super) struct Begun {
    pub(super) running: Running,
    pub(super) source: Source,
    /// What it says, for whoever started it.
    pub(super) heard: Heard,
    pub(super) exit: oneshot::Receiver<ExitStatus>,
}

impl Running {
    pub(super) fn start(
        children: &Children,
        mut command: Command,
        config: ProcessConfig,
        tag: Option<String>,
        pty: Option<Pty>,
        stdin: bool,
    ) -> io::Result<Begun> {
        let (input, source, started) = if let Some(Pty { size }) = pty {
            let (terminal, side) = Terminal::open(size)?;
            command.stdin(side.try_clone()?).stdout(side.try_clone()?).stderr(side);
            let started = children.start(&mut command)?;
            // It holds the programs' side open.
            drop(command);
            let terminal = Arc::new(terminal);
            (Inlet::terminal(terminal.clone()), Source::Terminal(terminal), started)
        } else {
            command.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
            let mut started = children.start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
            let source = Source::pipes(&mut started)?;
            let input = started.child.stdin.take().map(sender).transpose()?;
            (Inlet::pipe(input), source, started)
        };
        let Started { pid, exit, .. } = started;
        let (outlets, heard) = Outlets::new();
        let (read, told) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Begun { running: Self { pid, config, tag, outlets, input, read, told }, source, heard, exit })
    }

    /// Tells what it says until it is over, and returns how it ended. After that time it is killed, as envd does.
    pub(super) async fn attend(
        &self,
        children: &Children,
        source: Source,
        mut exit: oneshot::Receiver<ExitStatus>,
        time: Option<Duration>,
    ) -> Option<ExitStatus> {
        let has_terminal = matches!(source, Source::Terminal(_));
        let mut all_said = std::pin::pin!(self.tell_all(source));
        let mut late = std::pin::pin!(awake_for(time));
        let mut silent = false;
        let mut killed = false;
        let status = loop {
            tokio::select! {
                status = &mut exit => break status.ok(),
                () = &mut all_said, if !silent => silent = true,
                () = &mut late, if !killed => {
                    let _ = children.signal(self.pid, Signal::KILL);
                    killed = true;
                }
            }
        };
        let ended_well = status.is_some_and(|status| status.code().is_some());
        if !silent && ended_well && !has_terminal && !killed {
            // What it left in the background may still speak for it.
            tokio::select! {
                () = &mut all_said => silent = true,
                () = &mut late => {}
            }
        }
        while !silent {
            let before = self.read.load(Ordering::Relaxed);
            silent = timeout(LAST_WORDS, &mut all_said).await.is_ok()
                || before == self.read.load(Ordering::Relaxed) && before == self.told.load(Ordering::Relaxed);
        }
        self.input.end();
        status
    }

    async fn tell_all(&self, source: Source) {
        match source {
            Source::Terminal(terminal) => {
                while let Ok(chunk) = terminal.read().await {
                    if chunk.is_empty() {
                        return;
                    }
                    self.tell(Output::Pty, chunk.freeze()).await;
                }
            }
            Source::Pipes(stdout, stderr) => {
                tokio::join!(self.tell_pipe(stdout, Output::Stdout), self.tell_pipe(stderr, Output::Stderr));
            }
        }
    }

    async fn tell_pipe(&self, mut pipe: pipe::Receiver, output: fn(Blob) -> Output) {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            match pipe.read_buf(&mut chunk).await {
                Ok(1..) => self.tell(output, chunk.freeze()).await,
                Ok(0) | Err(_) => return,
            }
        }
    }

    async fn tell(&self, output: fn(Blob) -> Output, chunk: Bytes) {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.outlets.tell(Event::Data(output(Blob(chunk)))).await;
        self.told.fetch_add(1, Ordering::Relaxed);
    }
}

impl Source {
    fn pipes(started: &mut Started) -> io::Result<Self> {
        let missing = || io::Error::other("it has no pipes");
        let stdout = started.child.stdout.take().ok_or_else(missing)?;
        let stderr = started.child.stderr.take().ok_or_else(missing)?;
        let receiver = pipe::Receiver::from_owned_fd;
        Ok(Self::Pipes(receiver(OwnedFd::from(stdout))?, receiver(OwnedFd::from(stderr))?))
    }
}

fn sender(stdin: ChildStdin) -> io::Result<pipe::Sender> {
    pipe::Sender::from_owned_fd(OwnedFd::from(stdin))
}
