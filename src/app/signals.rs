//! The signals that end the process well, and the one that has it read its configuration again.

use std::{future::pending, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, caught from the moment that this exists.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Where SIGHUP matters as its end.
    terminal: Option<Terminal>,
    count: u32,
}

/// Where the process was started.
struct Terminal {
    hangup: Signal,
    /// Asks the stream that led there at the start.
    is_there: fn() -> bool,
}

/// From here on neither of these ends the process by itself, and SIGHUP neither. Needs a runtime, which must
/// outlive both.
pub(super) fn catch() -> io::Result<(Signals, Signal)> {
    let [terminate, interrupt, hangup] =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    Ok((Signals { terminate: terminate?, interrupt: interrupt?, terminal: None, count: 0 }, hangup?))
}

impl Signals {
    /// The next signal's name; also of one that came while nobody waited.
    pub(super) async fn told(&mut self) -> &'static str {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = closed(self.terminal.as_mut()) => "SIGHUP",
        };
        self.count += 1;
        name
    }

    /// Returns when a second one was told, also if that was before.
    #[cfg(feature = "dev")]
    pub(super) async fn told_twice(&mut self) {
        while self.count < 2 {
            self.told().await;
        }
    }

    /// Whoever works at a terminal ends what was started there by closing it. Any other SIGHUP means nothing.
    #[cfg(feature = "dev")]
    pub(super) fn end_with_terminal(self, hangup: Signal) -> Self {
        use io::IsTerminal as _;
        let streams: [fn() -> bool; 3] =
            [|| io::stdin().is_terminal(), || io::stdout().is_terminal(), || io::stderr().is_terminal()];
        let at_terminal = streams.into_iter().find(|is_terminal| is_terminal());
        Self { terminal: at_terminal.map(|is_there| Terminal { hangup, is_there }), ..self }
    }
}

async fn closed(terminal: Option<&mut Terminal>) {
    let Some(Terminal { hangup, is_there }) = terminal else { return pending().await };
    while hangup.recv().await.is_some() && is_there() {}
}
