//! What the driver answers to a call, as far as somebody wants it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    client::Client,
    driver::{Driver, Line, Place},
};

/// Bytes of an answer after which the driver is told that they were taken.
const TOLD_EVERY: usize = 64 << 10;

/// The driver is gone, and this answer's end with it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the interpreter has ended, and all contexts are lost; the playground's log has what it said")]
pub(super) struct Lost;

/// Dropped before its end, it calls the call off: code that waits for its turn will not run, and code that runs is
/// interrupted. If it was the sandbox's pause that took the client, that goes on, as all programs of the sandbox do.
pub(super) struct Answers {
    driver: Arc<Driver>,
    number: u64,
    lines: mpsc::UnboundedReceiver<Line>,
    _place: Option<Place>,
    /// Whose code it is.
    client: Option<Client>,
    /// Bytes of the last line, which may still wait for the client.
    last: usize,
    /// Bytes taken of which the driver has not been told.
    untold: usize,
    ended: bool,
}

impl Answers {
    pub(super) fn new(
        driver: Arc<Driver>,
        number: u64,
        lines: mpsc::UnboundedReceiver<Line>,
        place: Option<Place>,
    ) -> Self {
        Self { driver, number, lines, _place: place, client: None, last: 0, untold: 0, ended: false }
    }

    pub(super) fn to(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The next line, with its line break; `None` at the end. To be asked for once the client has taken most of the one
    /// before.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        if self.ended {
            return Ok(None);
        }
        self.untold += std::mem::take(&mut self.last);
        if self.untold >= TOLD_EVERY {
            self.driver.send(&json!({ "do": "taken", "call": self.number, "bytes": self.untold }));
            self.untold = 0;
        }
        match self.lines.recv().await {
            Some(Line::Text(line)) => {
                // As the driver counts: with the number and the space in front.
                self.last = line.len() + self.number.to_string().len() + 1;
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
        let tell = |what| self.driver.send(&json!({ "do": what, "call": self.number }));
        tell("left");
        if !self.ended && self.client.as_ref().is_some_and(|client| !client.was_cut()) {
            tell("interrupt");
        }
    }
}
