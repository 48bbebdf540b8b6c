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

/// Which life at an address: the connections to a former one are another party's. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life(pub(crate) u64);

/// One HTTP/1.1 connection. Dropping it closes the socket at once, whatever is under way: an exchange
/// that nobody waits for is aborted, not finished.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Attempt<Incoming>>,
    /// It has served before: its peer may have closed it meanwhile.
    pub(crate) reused: bool,
    pub(crate) address: Rc<str>,
    pub(crate) life: Life,
    /// The body of the last answer, read to its end. To drop it wakes the connection's task, for nothing:
    /// so that is done when the next request wakes it anyway.
    pub(crate) spent: Option<Incoming>,
    pub(crate) _driver: AbortOnDropHandle<()>,
    /// Counted until this is dropped.
    pub(crate) open: Gauged,
}

/// Idle connections by address, the last used first, all of them of one life.
pub(crate) struct Pool {
    /// At most [`MAX_IDLE`] keys, each of a connection that was made: hashed fast, not against collisions.
    idle: RefCell<HashMap<Rc<str>, Vec<Idle>, foldhash::fast::RandomState>>,
    count: Cell<usize>,
    idle_timeout: Duration,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

/// Idle connections that one worker keeps.
const MAX_IDLE: usize = 2048;

impl Pool {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { idle: RefCell::default(), count: Cell::new(0), idle_timeout }
    }

    /// A connection that can take a request now, if there is one.
    pub(crate) fn take(&self, address: &str, life: Life) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        let stack = idle.get_mut(address)?;
        let now = Instant::now();
        while let Some(Idle { mut connection, since }) = stack.pop() {
            self.count.set(self.count.get() - 1);
            if connection.life == life && connection.sender.is_ready() && now < since + self.idle_timeout {
                connection.reused = true;
                connection.spent = None;
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose exchange is over. One that is still busy (the answer came before the
    /// upload's end), closed, or of a former life is dropped.
    pub(crate) fn put(&self, connection: Box<Connection>) {
        if !connection.sender.is_ready() {
            return;
        }
        if self.count.get() >= MAX_IDLE {
            self.make_room();
        }
        let mut map = self.idle.borrow_mut();
        let life = connection.life;
        let address = connection.address.clone();
        let idle = Idle { since: Instant::now(), connection };
        let stack = map.entry(address).or_default();
        match stack.last().map(|last| last.connection.life) {
            Some(present) if life < present => return,
            Some(former) if former < life => {
                self.count.set(self.count.get() - stack.len());
                stack.clear();
            }
            _ => {}
        }
        stack.push(idle);
        self.count.set(self.count.get() + 1);
    }

    /// Closes what is too old or was closed by its peer.
    pub(crate) fn sweep(&self, now: Instant) {
        self.retain(|idle| now < idle.since + self.idle_timeout && !idle.connection.sender.is_closed());
    }

    /// Closes the eighth that is idle for longest: to find one of them is a walk through all.
    fn make_room(&self) {
        let mut since: Vec<Instant> = self.idle.borrow().values().flatten().map(|idle| idle.since).collect();
        since.sort_unstable();
        if let Some(bound) = since.get(since.len() / 8) {
            self.retain(|idle| idle.since > *bound);
        }
    }

    fn retain(&self, mut keep: impl FnMut(&Idle) -> bool) {
        let mut kept = 0;
        self.idle.borrow_mut().retain(|_, stack| {
            stack.retain(&mut keep);
            kept += stack.len();
            !stack.is_empty()
        });
        self.count.set(kept);
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::{io::DuplexStream, task::LocalSet};

    use super::*;

    /// An idle connection and its peer.
    async fn connection(address: &str, life: u64) -> (Box<Connection>, DuplexStream) {
        let (ours, peer) = tokio::io::duplex(64);
        let (mut sender, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.expect("a connection");
        let driver = tokio::task::spawn_local(async move { drop(driver.await) });
        sender.ready().await.expect("an open connection");
        let connection = Box::new(Connection {
            sender,
            reused: false,
            address: address.into(),
            life: Life(life),
            spent: None,
            _driver: AbortOnDropHandle::new(driver),
            open: Gauged::new(&metrics::Gauge::noop()),
        });
        (connection, peer)
    }

    fn idle(pool: &Pool) -> usize {
        let idle = pool.idle.borrow().values().map(Vec::len).sum();
        assert_eq!(pool.count.get(), idle);
        idle
    }

    #[tokio::test]
    async fn where_there_is_no_room_the_oldest_make_it() {
        let test = async {
            let pool = Pool::new(Duration::from_mins(10));
            let mut peers = Vec::new();
            for number in 0..=MAX_IDLE {
                let (connection, peer) = connection(&number.to_string(), 0).await;
                pool.put(connection);
                peers.push(peer);
            }
            let left = idle(&pool);
            assert!(left <= MAX_IDLE && left > MAX_IDLE / 2, "{left}");
            assert!(pool.take(&MAX_IDLE.to_string(), Life(0)).is_some(), "the newest is kept");
            assert!(pool.take("0", Life(0)).is_none(), "the oldest is not");
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_former_life() {
        let test = async {
            let pool = Pool::new(Duration::from_mins(10));
            let mut peers = Vec::new();
            let mut put = async |life| {
                let (connection, peer) = connection("a", life).await;
                pool.put(connection);
                peers.push(peer);
                idle(&pool)
            };
            assert_eq!((put(1).await, put(1).await), (1, 2));
            // The next life begins; an exchange of the former one ends late.
            assert_eq!((put(2).await, put(1).await, put(2).await), (1, 1, 2));
            assert!(pool.take("a", Life(2)).is_some_and(|connection| connection.reused));
            assert!(pool.take("a", Life(3)).is_none());
            assert_eq!(idle(&pool), 0);
        };
        LocalSet::new().run_until(test).await;
    }
}
