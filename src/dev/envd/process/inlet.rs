//! What goes into a program: one caller's input after the other, each whole. Whoever writes waits for the program
//! to read; closing and the program's end wait for nobody.

use std::sync::Arc;

use tokio::{io::AsyncWriteExt as _, net::unix::pipe, sync::Mutex};
use tokio_util::sync::CancellationToken;

use super::{messages::Size, terminal::Terminal};

pub(super) struct Inlet {
    way: Way,
    /// Nothing goes in any more, whatever waits.
    over: CancellationToken,
}

enum Way {
    Terminal {
        terminal: Arc<Terminal>,
        turn: Mutex<()>,
    },
    /// `None`: not wanted, or closed.
    Pipe(Mutex<Option<pipe::Sender>>),
}

impl Inlet {
    pub(super) fn terminal(terminal: Arc<Terminal>) -> Self {
        Self { way: Way::Terminal { terminal, turn: Mutex::default() }, over: CancellationToken::new() }
    }

    pub(super) fn pipe(pipe: Option<pipe::Sender>) -> Self {
        Self { way: Way::Pipe(Mutex::new(pipe)), over: CancellationToken::new() }
    }

    pub(super) async fn write_stdin(&self, data: &[u8]) -> Result<(), String> {
        let Way::Pipe(pipe) = &self.way else {
            return Err("tty assigned to process: input should be written to the pty, not the stdin".to_owned());
        };
        self.until_over(async {
            let mut pipe = pipe.lock().await;
            let pipe = pipe.as_mut().ok_or("stdin not enabled or closed")?;
            pipe.write_all(data).await.map_err(|error| error.to_string())
        })
        .await
    }

    pub(super) async fn write_pty(&self, data: &[u8]) -> Result<(), String> {
        let Way::Terminal { terminal, turn } = &self.way else {
            return Err(NO_TERMINAL.to_owned());
        };
        self.until_over(async {
            let _turn = turn.lock().await;
            terminal.write(data).await.map_err(|error| error.to_string())
        })
        .await
    }

    pub(super) async fn close_stdin(&self) -> Result<(), String> {
        let Way::Pipe(pipe) = &self.way else {
            return Err("cannot close the stdin of a PTY process: send Ctrl+D (0x04) to the pty".to_owned());
        };
        self.end();
        // Free in a moment: whoever writes has been told.
        pipe.lock().await.take();
        Ok(())
    }

    /// The program is over, or wants nothing more.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    pub(super) fn resize(&self, size: Size) -> Result<(), String> {
        let Way::Terminal { terminal, .. } = &self.way else {
            return Err(NO_TERMINAL.to_owned());
        };
        terminal.resize(size).map_err(|error| error.to_string())
    }

    async fn until_over(&self, written: impl Future<Output = Result<(), String>>) -> Result<(), String> {
        tokio::select! {
            biased;
            outcome = written => outcome,
            () = self.over.cancelled() => Err("closed before it was read".to_owned()),
        }
    }
}

const NO_TERMINAL: &str = "tty not assigned to process";
