//! What is expected of a client connection now, and by when. The connection's own task is the only one
//! that touches it.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::Instant;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From the first byte to the end of a head; also from accept to the first byte.
    pub(crate) head: Duration,
    /// Between requests.
    pub(crate) idle: Duration,
}

/// How often a busy connection is looked at for a client that left. Each look polls all of the connection's
/// task; what is promised is that the sandbox hears of it within a second.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No byte of a head yet.
    Waiting,
    /// Somewhere in a head.
    Head,
    /// A request is being handled.
    Busy,
}

/// Shared by a connection's socket and its service.
#[derive(Clone)]
pub(crate) struct Watch(Rc<Inner>);

struct Inner {
    phase: Cell<Phase>,
    due: Cell<Instant>,
    /// When the first byte of the head came.
    head_began: Cell<Instant>,
    patience: Patience,
    open_ended: Cell<bool>,
    /// The client does not take what was written.
    blocked: Cell<bool>,
}

impl Watch {
    /// For a connection accepted now.
    pub(crate) fn new(patience: Patience, now: Instant) -> Self {
        let (phase, due) = (Cell::new(Phase::Waiting), Cell::new(now + patience.head));
        let (head_began, open_ended, blocked) = (Cell::new(now), Cell::new(false), Cell::new(false));
        Self(Rc::new(Inner { phase, due, head_began, patience, open_ended, blocked }))
    }

    pub(crate) fn phase(&self) -> Phase {
        self.0.phase.get()
    }

    /// When the connection is to be looked at.
    pub(crate) fn due(&self) -> Instant {
        self.0.due.get()
    }

    /// An answer is under way that ends with the connection, and is not at its end.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.0.open_ended.get()
    }

    pub(crate) fn set_open_ended(&self, is: bool) {
        self.0.open_ended.set(is);
    }

    pub(crate) fn set_blocked(&self, is: bool) {
        self.0.blocked.set(is);
    }

    /// Whether all that was asked is answered, and nothing is asked. Of a connection that waits: while hyper
    /// works on it, what it has not read and what it has not written is still with it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.phase() == Phase::Waiting && !self.0.blocked.get()
    }

    /// Bytes came.
    pub(crate) fn bytes(&self) {
        if self.phase() == Phase::Waiting {
            let now = Instant::now();
            self.0.head_began.set(now);
            self.set(Phase::Head, now + self.0.patience.head);
        }
    }

    /// The client is still there: look again later.
    pub(crate) fn still_there(&self) {
        self.set(Phase::Busy, Instant::now() + LOOK);
    }

    /// A head is complete; until the guard is dropped, with the end of the answer, it is our turn.
    pub(crate) fn request(&self) -> Busy {
        // Counted from the head's first byte: a look too early costs less than to ask the clock each time.
        self.set(Phase::Busy, self.0.head_began.get() + LOOK);
        Busy(self.clone())
    }

    fn set(&self, phase: Phase, due: Instant) {
        self.0.phase.set(phase);
        self.0.due.set(due);
    }
}

/// One request that is being handled or answered.
pub(crate) struct Busy(Watch);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Phase::Waiting, Instant::now() + self.0.0.patience.idle);
    }
}
