//! What the driver answers to a call, as far as somebody wants it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::driver::{Driver, Line, Place};

/// Bytes of an answer after which the driver is told that they were taken.
const TOLD_EVERY: usize = 64 << 10;
/// Longer than this process needs after a wake to hear of it.
const MOMENT: Duration = Duration::from_millis(100);
/// Longer than this process needs after a wake to notice which clients the pause took. Who leaves later has left by
/// itself: a caller inside the sandbox, say, which no pause cuts off.
const RECENT: Duration = Duration::from_secs(1);

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
    place: Option<Place>,
    began: Instant,
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
        Self { driver, number, lines, place, began: Instant::now(), last: 0, untold: 0, ended: false }
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
        let (driver, number, began, left) = (self.driver.clone(), self.number, self.began, Instant::now());
        let tell = move |what| driver.send(&json!({ "do": what, "call": number }));
        tell("left");
        if self.ended || self.place.is_none() {
            return;
        }
        let wakes = self.driver.wakes.clone();
        tokio::spawn(async move {
            sleep(MOMENT).await;
            let was_cut = |wake| began < wake && left < wake + RECENT;
            if !wakes.last().is_some_and(was_cut) {
                tell("interrupt");
            }
        });
    }
}
