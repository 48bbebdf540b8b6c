//! Connections of one worker to nodes and sandboxes. No lock, no other thread: a worker's connections
//! are its own.
//!
//! Where many are open to one address, whoever wants another waits a moment for one that comes back: under
//! a load of thousands at once all would dial, and little of what they dialled could be kept.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{body::Attempt, driver::Driver, ways::Way};

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
    /// `None`: it does not come back to the pool.
    pub(crate) member: Option<Member>,
    pub(crate) driver: Driver,
    /// Counted until this is dropped.
    pub(crate) open: Way,
}

/// What is idle, and what is open, by address.
pub(crate) struct Pool {
    /// Idle connections, the last used first, all of one life. At most [`MAX_IDLE`] keys, each of a connection that
    /// was made: hashed fast, not against collisions.
    idle: ByAddress<Vec<Idle>>,
    count: Cell<usize>,
    idle_timeout: Duration,
    crowds: ByAddress<Rc<Crowd>>,
}

type ByAddress<T> = RefCell<HashMap<Rc<str>, T, foldhash::fast::RandomState>>;

/// The connections to one address, and who waits for one of them.
#[derive(Default)]
struct Crowd {
    open: Cell<usize>,
    /// The longest first.
    waiting: RefCell<VecDeque<(Life, oneshot::Sender<Box<Connection>>)>>,
}

/// One open connection of a crowd, until dropped.
pub(crate) struct Member(Rc<Crowd>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

/// Idle connections that one worker keeps.
const MAX_IDLE: usize = 2048;
/// With so many open to one address, and none idle, one is waited for.
const CROWD: usize = 512;
/// But not longer than this: they may all be at work for long.
const MOMENT: Duration = Duration::from_millis(10);
/// The same where there is no room to dial.
const WHILE: Duration = Duration::from_secs(1);

impl Pool {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { idle: RefCell::default(), count: Cell::new(0), idle_timeout, crowds: RefCell::default() }
    }

    /// There is one more connection to this address that will come back.
    pub(crate) fn join(&self, address: &Rc<str>) -> Member {
        let crowd = self.crowds.borrow_mut().entry(address.clone()).or_default().clone();
        crowd.open.set(crowd.open.get() + 1);
        Member(crowd)
    }

    /// The next one that comes back, where many are open and one does so in a moment.
    /// Without room for others, wherever one is open, and longer.
    pub(crate) async fn wait(&self, address: &str, life: Life, have_room: bool) -> Option<Box<Connection>> {
        let returned = {
            let crowds = self.crowds.borrow();
            let crowd = crowds.get(address).filter(|crowd| !have_room || crowd.open.get() >= CROWD)?;
            let mut waiting = crowd.waiting.borrow_mut();
            // Those whose moment is over are the first.
            while waiting.front().is_some_and(|(_, gone)| gone.is_closed()) {
                waiting.pop_front();
            }
            let (sender, receiver) = oneshot::channel();
            waiting.push_back((life, sender));
            receiver
        };
        let moment = if have_room { MOMENT } else { WHILE };
        let mut connection = timeout(moment, returned).await.ok()?.ok()?;
        connection.reused = true;
        Some(connection)
    }

    /// Gives it to whoever waits for it the longest; back, if nobody does.
    fn pass_on(mut connection: Box<Connection>) -> Option<Box<Connection>> {
        loop {
            let next = connection.member.as_ref().and_then(|Member(crowd)| crowd.waiting.borrow_mut().pop_front());
            match next {
                None => return Some(connection),
                Some((life, next)) if life == connection.life => match next.send(connection) {
                    Ok(()) => return None,
                    Err(unwanted) => connection = unwanted,
                },
                // Who waits for another life has to dial.
                Some(_) => {}
            }
        }
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
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose exchange is over, or gives it to whoever waits for one. One that is still busy
    /// (the answer came before the upload's end), closed, or of a former life is dropped.
    pub(crate) fn put(&self, connection: Box<Connection>) {
        if !connection.sender.is_ready() {
            return;
        }
        let Some(connection) = Self::pass_on(connection) else { return };
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
        self.crowds.borrow_mut().retain(|_, crowd| crowd.open.get() > 0);
        self.retain(|idle| now < idle.since + self.idle_timeout && !idle.connection.sender.is_closed());
    }

    /// Closes the eighth that is idle for longest: to find one of them is a walk through all.
    pub(crate) fn make_room(&self) {
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
    use crate::forward::ways::Ways;

    /// An idle connection and its peer.
    async fn connection(address: &str, life: u64) -> (Box<Connection>, DuplexStream) {
        let (ours, peer) = tokio::io::duplex(64);
        let (mut sender, driver) =
            hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.expect("a connection");
        let driver = Driver::spawn(driver);
        sender.ready().await.expect("an open connection");
        let connection = Box::new(Connection {
            sender,
            reused: false,
            address: address.into(),
            life: Life(life),
            member: None,
            driver,
            open: Ways::new(1, metrics::Gauge::noop()).take().expect("room"),
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

    #[tokio::test]
    async fn in_a_crowd_one_that_comes_back_goes_to_whoever_waits_the_longest() {
        let test = async {
            let pool = Rc::new(Pool::new(Duration::from_mins(10)));
            let address: Rc<str> = "a".into();
            let (mut connection, _peer) = connection(&address, 7).await;
            connection.member = Some(pool.join(&address));
            assert!(pool.wait("a", Life(7), true).await.is_none(), "there is no crowd");
            let _others: Vec<_> = (1..CROWD).map(|_| pool.join(&address)).collect();
            let mut asked: Vec<_> = [6, 7, 7, 7].map(|life| Box::pin(pool.wait("a", Life(life), true))).into();
            for asked in &mut asked {
                assert!(futures_util::poll!(asked).is_pending());
            }
            let [former, gone, first, second] = asked.try_into().ok().expect("four");
            drop(gone);
            pool.put(connection);
            assert!(former.await.is_none(), "it is another party's");
            let connection = first.await.expect("the connection");
            assert!(connection.reused);
            assert!(second.await.is_none(), "not in a moment");
            pool.put(connection);
            assert_eq!(idle(&pool), 1, "nobody waits any more");
        };
        LocalSet::new().run_until(test).await;
    }
}
