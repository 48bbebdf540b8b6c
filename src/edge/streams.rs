//! What the streams of an HTTP/2 connection and the connection itself need to know of each other. All of
//! them run on one thread.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::Waker,
    time::Duration,
};

use slab::Slab;
use tokio::time::Instant;

use super::watch::Patience;

/// Streams that a client may give up unanswered in [`WINDOW`]: each costs a lookup, and it could open and reset
/// them faster than anybody can serve (CVE-2023-44487).
const MAX_GIVEN_UP: u32 = 1000;
const WINDOW: Duration = Duration::from_secs(10);

/// Shared by a connection and its streams.
pub(crate) struct Streams {
    /// Those that are open, each with whom to wake while it waits for its answer.
    open: RefCell<Slab<Option<Waker>>>,
    idle_since: Cell<Instant>,
    /// How long it may be idle: at first only as long as any new connection.
    patience: Cell<Duration>,
    idle: Duration,
    leaves: Cell<bool>,
    given_up: Cell<u32>,
    counted_since: Cell<Instant>,
}

impl Streams {
    /// For a connection that begins now.
    pub(crate) fn new(patience: Patience) -> Rc<Self> {
        let now = Instant::now();
        Rc::new(Self {
            open: RefCell::default(),
            idle_since: Cell::new(now),
            patience: Cell::new(patience.head),
            idle: patience.idle,
            leaves: Cell::new(false),
            given_up: Cell::new(0),
            counted_since: Cell::new(now),
        })
    }

    pub(crate) fn open(self: &Rc<Self>) -> Stream {
        self.patience.set(self.idle);
        let key = self.open.borrow_mut().insert(None);
        Stream { streams: self.clone(), key, answered: false }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// When the connection has been idle for long enough, if it stays so.
    pub(crate) fn due(&self) -> Instant {
        let since = if self.is_idle() { self.idle_since.get() } else { Instant::now() };
        since + self.patience.get()
    }

    /// Whether an answer has left while this process drains: the client shall go elsewhere.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.get()
    }

    /// Whether the client gives up more than anybody would who wants answers.
    pub(crate) fn flooded(&self) -> bool {
        self.given_up.get() > MAX_GIVEN_UP
    }

    /// Wakes every stream that waits for its answer: the process ends, and they can say so.
    pub(crate) fn wake(&self) {
        self.open.borrow().iter().filter_map(|(_, waker)| waker.as_ref()).for_each(Waker::wake_by_ref);
    }

    fn give_up(&self) {
        let now = Instant::now();
        if now >= self.counted_since.get() + WINDOW {
            self.counted_since.set(now);
            self.given_up.set(0);
        }
        self.given_up.set(self.given_up.get() + 1);
    }
}

/// One stream, until dropped.
pub(crate) struct Stream {
    streams: Rc<Streams>,
    key: usize,
    answered: bool,
}

impl Stream {
    /// It waits for its answer. A stream's task is the same all its life.
    pub(crate) fn waits(&self, waker: &Waker) {
        if let Some(slot) = self.streams.open.borrow_mut().get_mut(self.key) {
            slot.get_or_insert_with(|| waker.clone());
        }
    }

    /// The head of its answer is on its way. `leaves`: and should be among the last on this connection.
    pub(crate) fn answered(&mut self, leaves: bool) {
        self.answered = true;
        if leaves {
            self.streams.leaves.set(true);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.open.borrow_mut().remove(self.key);
        if self.streams.is_idle() {
            self.streams.idle_since.set(Instant::now());
        }
        if !self.answered {
            self.streams.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { head: Duration::from_secs(30), idle: Duration::from_secs(620) };

    #[tokio::test(start_paused = true)]
    async fn the_first_stream_is_awaited_less_long_than_the_next() {
        let streams = Streams::new(PATIENCE);
        let start = Instant::now();
        assert_eq!(streams.due(), start + PATIENCE.head);
        tokio::time::advance(PATIENCE.head / 2).await;
        let stream = streams.open();
        tokio::time::advance(PATIENCE.idle * 2).await;
        assert!(!streams.is_idle() && streams.due() > Instant::now(), "one is open");
        drop(stream);
        assert_eq!(streams.due(), Instant::now() + PATIENCE.idle);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_a_thousand_at_once_is_a_flood_and_who_does_so_all_day_is_not() {
        let streams = Streams::new(PATIENCE);
        for _ in 0..10 * MAX_GIVEN_UP {
            streams.open().answered(false);
            drop(streams.open());
            tokio::time::advance(WINDOW / 500).await;
        }
        assert!(!streams.flooded());
        for _ in 0..=MAX_GIVEN_UP {
            drop(streams.open());
        }
        assert!(streams.flooded());
    }
}
