//! Connections of one worker to nodes and sandboxes. No lock, no other thread: a worker's connections
//! are its own.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Duration,
};

use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::body::Attempt;
use crate::telemetry::Gauged;

/// One HTTP/1.1 connection. Dropping it closes the socket at once, whatever is under way: an exchange
/// that nobody waits for is aborted, not finished.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Attempt<Incoming>>,
    /// It has served before: its peer may have closed it meanwhile.
    pub(crate) reused: bool,
    pub(crate) key: Rc<str>,
    pub(crate) _driver: AbortOnDropHandle<()>,
    pub(crate) _open: Gauged,
}

/// Idle connections by key, the last used first.
pub(crate) struct Pool {
    idle: RefCell<HashMap<Rc<str>, Vec<Idle>>>,
    count: Cell<usize>,
    idle_timeout: Duration,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// Idle connections that one worker keeps.
const MAX_IDLE: usize = 2048;

impl Pool {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { idle: RefCell::default(), count: Cell::new(0), idle_timeout }
    }

    /// A connection that can take a request now, if there is one.
    pub(crate) fn take(&self, key: &str) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let stack = idle.get_mut(key)?;
        let now = Instant::now();
        while let Some(Idle { connection, since }) = stack.pop() {
            self.count.set(self.count.get() - 1);
            if connection.sender.is_ready() && now < since + self.idle_timeout {
                return Some(Connection { reused: true, ..connection });
            }
        }
        None
    }

    /// Keeps a connection whose exchange is over. One that is still busy (the answer came before the
    /// upload's end) or closed is dropped.
    pub(crate) fn put(&self, connection: Connection) {
        if !connection.sender.is_ready() || self.count.get() >= MAX_IDLE {
            return;
        }
        self.count.set(self.count.get() + 1);
        let idle = Idle { since: Instant::now(), connection };
        let mut map = self.idle.borrow_mut();
        match map.get_mut(&*idle.connection.key) {
            Some(stack) => stack.push(idle),
            None => {
                map.insert(idle.connection.key.clone(), vec![idle]);
            }
        }
    }

    /// Closes what is too old or was closed by its peer.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut kept = 0;
        self.idle.borrow_mut().retain(|_, stack| {
            stack.retain(|idle| now < idle.since + self.idle_timeout && !idle.connection.sender.is_closed());
            kept += stack.len();
            !stack.is_empty()
        });
        self.count.set(kept);
    }
}
