//! The HTTP/2 connections of one worker, by party: shared by all exchanges that mean the same life of it. One
//! dial at a time for each, whoever began it, and as few connections as have room for all streams.
//!
//! A party is whoever may block the others on a connection: the window for all uploads on it is the peer's, and a
//! node gives it back as sandboxes read. In direct mode that is an address, in node mode a sandbox at one. Instead,
//! a connection with an upload that waits could be left to it; but streams that began before would be caught, and
//! the last bytes of an upload wait where only the library sees them. The price is small: a connection for each
//! sandbox that is called over HTTP/2, where HTTP/1.1 has one for each exchange.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    io,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot, watch},
    task::spawn_local,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    MAX_IN_VAIN,
    connection::{ConnectError, Connection, Stream},
    unreachable,
};
use crate::forward::{DialError, Life, SendError};

/// Connections of one worker to one party: with those it has as many streams as it has room for clients.
const MAX_CONNECTIONS: usize = 128;
/// Idle connections that one worker keeps, to all parties.
const MAX_IDLE: usize = 1024;
/// How long an exchange waits for a stream where there are as many connections as may be.
const FOR_A_STREAM: Duration = Duration::from_secs(10);

/// All parties.
pub(crate) struct Hubs {
    /// Hashed fast, not against collisions: each was dialled, and is of a sandbox that is there.
    hubs: RefCell<HashMap<Rc<str>, Rc<Hub>, foldhash::fast::RandomState>>,
    idle_timeout: Duration,
}

impl Hubs {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { hubs: RefCell::default(), idle_timeout }
    }

    /// The connections to this life of the party. Those to a former one are another party's, and close when
    /// their exchanges are over; to one that is over already nothing is kept.
    pub(super) fn hub(&self, party: &str, life: Option<Life>) -> Rc<Hub> {
        let Some(life) = life else { return Hub::new(Life::default()) };
        let mut hubs = self.hubs.borrow_mut();
        match hubs.get(party) {
            Some(hub) if hub.life == life => return hub.clone(),
            Some(hub) if hub.life > life => return Hub::new(life),
            Some(former) => former.connections.borrow_mut().clear(),
            None => {}
        }
        let hub = Hub::new(life);
        hubs.insert(party.into(), hub.clone());
        hub
    }

    /// Closes what is idle for too long, or was closed by its peer.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut since: Vec<Instant> = Vec::new();
        self.retain(|connection| {
            let idle = connection.idle_since();
            let keep = idle.is_none_or(|idle| now < idle + self.idle_timeout);
            since.extend(idle.filter(|_| keep));
            keep
        });
        if since.len() > MAX_IDLE {
            since.sort_unstable_by(|one, other| other.cmp(one));
            let bound = since[MAX_IDLE];
            self.retain(|connection| connection.idle_since().is_none_or(|idle| idle > bound));
        }
    }

    fn retain(&self, mut keep: impl FnMut(&Connection) -> bool) {
        self.hubs.borrow_mut().retain(|_, hub| {
            hub.connections.borrow_mut().retain(|connection| connection.is_alive() && keep(connection));
            // Whoever waits for a dial, or has a stream, has the hub as well.
            !hub.connections.borrow().is_empty() || Rc::strong_count(hub) > 1
        });
    }
}

/// One life of one party.
pub(super) struct Hub {
    life: Life,
    connections: RefCell<Vec<Rc<Connection>>>,
    dial: RefCell<Weak<Dial>>,
    /// Who waits for a stream, the longest first.
    waiting: RefCell<VecDeque<oneshot::Sender<Box<Stream>>>>,
    /// A connection has ended where there were as many as may be, and somebody waits.
    thinned: Notify,
}

/// A dial under way, as long as anybody waits for it.
struct Dial {
    stage: watch::Receiver<Stage>,
    _task: AbortOnDropHandle<()>,
}

/// How far a dial is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Dialling,
    /// Somebody is there, and has not said yet how many streams may be.
    Connected,
    Over(Outcome),
}

/// Whether somebody had a stream of it.
type Outcome = Result<bool, ConnectError>;

impl Hub {
    fn new(life: Life) -> Rc<Self> {
        let (connections, dial, waiting) = (RefCell::default(), RefCell::default(), RefCell::default());
        Rc::new(Self { life, connections, dial, waiting, thinned: Notify::new() })
    }

    /// A stream on one of the connections, or on another that `connect` makes. `in_vain`: how many of them the
    /// request has met already that ended as soon as they had begun. `awaited` is called when the peer is there and
    /// only its leave is waited for.
    pub(super) async fn stream<F>(
        self: &Rc<Self>,
        in_vain: &mut usize,
        awaited: impl Fn(),
        connect: impl Fn(watch::Sender<Stage>) -> F,
    ) -> Result<Box<Stream>, SendError>
    where
        F: Future<Output = Result<Rc<Connection>, ConnectError>> + 'static,
    {
        // Nobody overtakes who waits already, also not after a peer has raised its limit.
        self.hand_over();
        if !self.somebody_waits()
            && let Some(stream) = self.take()
        {
            return Ok(stream);
        }
        let (next, mut turn) = oneshot::channel();
        self.waiting.borrow_mut().push_back(next);
        let give_up = Instant::now() + FOR_A_STREAM;
        loop {
            if self.is_full() {
                awaited();
                tokio::select! {
                    biased;
                    stream = &mut turn => return stream.map_err(|_| unreachable().into()),
                    () = self.thinned.notified() => continue,
                    () = sleep_until(give_up) => {
                        return Err(DialError::NoRoom(io::Error::other("every stream is taken")).into());
                    }
                }
            }
            let dial = self.dial(&connect);
            let outcome = tokio::select! {
                biased;
                stream = &mut turn => return stream.map_err(|_| unreachable().into()),
                outcome = dial.outcome(&awaited) => outcome?,
            };
            if !outcome {
                *in_vain += 1;
                if *in_vain >= MAX_IN_VAIN {
                    return Err(unreachable().into());
                }
            }
        }
    }

    /// A stream has ended.
    pub(super) fn freed(self: &Rc<Self>) {
        self.hand_over();
        if self.somebody_waits() && !self.is_full() {
            self.thinned.notify_waiters();
        }
    }

    /// Gives what is free to whoever waits the longest. Whether anybody had something of it.
    fn hand_over(self: &Rc<Self>) -> bool {
        let mut any = false;
        while self.somebody_waits()
            && let Some(stream) = self.take()
        {
            let next = self.waiting.borrow_mut().pop_front();
            any |= next.is_some_and(|next| next.send(stream).is_ok());
        }
        any
    }

    fn somebody_waits(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(oneshot::Sender::is_closed) {
            waiting.pop_front();
        }
        !waiting.is_empty()
    }

    fn is_full(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_alive());
        connections.len() >= MAX_CONNECTIONS
    }

    fn take(self: &Rc<Self>) -> Option<Box<Stream>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_alive());
        // The first that has room: so that others become idle, and close.
        let connection = connections.iter().find(|connection| connection.has_room())?;
        Some(Box::new(Stream::new(connection.clone(), self.clone())))
    }

    /// The dial that is under way, or a new one. It is nobody's own: who leaves takes it from nobody.
    fn dial<F>(self: &Rc<Self>, connect: impl Fn(watch::Sender<Stage>) -> F) -> Rc<Dial>
    where
        F: Future<Output = Result<Rc<Connection>, ConnectError>> + 'static,
    {
        if let Some(dial) = self.dial.borrow().upgrade()
            && !matches!(&*dial.stage.borrow(), Stage::Over(_))
        {
            return dial;
        }
        let (told, stage) = watch::channel(Stage::Dialling);
        let (hub, connecting) = (Rc::downgrade(self), connect(told.clone()));
        let task = spawn_local(async move {
            let outcome = connecting.await.map(|connection| {
                hub.upgrade().is_some_and(|hub| {
                    hub.connections.borrow_mut().push(connection);
                    hub.hand_over()
                })
            });
            told.send_replace(Stage::Over(outcome));
        });
        let dial = Rc::new(Dial { stage, _task: AbortOnDropHandle::new(task) });
        *self.dial.borrow_mut() = Rc::downgrade(&dial);
        dial
    }
}

impl Dial {
    async fn outcome(&self, awaited: impl Fn()) -> Outcome {
        let mut stage = self.stage.clone();
        loop {
            match &*stage.borrow_and_update() {
                Stage::Dialling => {}
                Stage::Connected => awaited(),
                Stage::Over(outcome) => return outcome.clone(),
            }
            if stage.changed().await.is_err() {
                return Err(unreachable().into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
