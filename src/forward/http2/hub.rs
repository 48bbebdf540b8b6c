//! The HTTP/2 connections of one worker, by address: shared by all exchanges that mean the same life there. One
//! dial at a time for each, whoever began it, and as few connections as have room for all streams.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    task::spawn_local,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::connection::{Connection, Stream};
use crate::forward::{DialError, Life, SendError};

/// Connections of one worker to one address: with those it has as many streams as it has room for clients.
const MAX_CONNECTIONS: usize = 128;
/// Idle connections that one worker keeps, to all addresses.
const MAX_IDLE: usize = 1024;
/// How long an exchange waits for a stream where there are as many connections as may be.
const FOR_A_STREAM: Duration = Duration::from_secs(10);
/// Connections that others took before this exchange could, or that ended as soon as they had begun.
const MAX_DIALS: usize = MAX_CONNECTIONS + 2;

/// All addresses.
pub(crate) struct Hubs {
    /// Hashed fast, not against collisions: each was dialled.
    hubs: RefCell<HashMap<Rc<str>, Rc<Hub>, foldhash::fast::RandomState>>,
    idle_timeout: Duration,
}

impl Hubs {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { hubs: RefCell::default(), idle_timeout }
    }

    /// The connections to this life at the address. Those to a former one are another party's, and close when
    /// their exchanges are over; to one that is over already nothing is kept.
    pub(super) fn hub(&self, address: &str, life: Option<Life>) -> Rc<Hub> {
        let Some(life) = life else { return Hub::new(Life::default()) };
        let mut hubs = self.hubs.borrow_mut();
        match hubs.get(address) {
            Some(hub) if hub.life == life => return hub.clone(),
            Some(hub) if hub.life > life => return Hub::new(life),
            Some(former) => former.connections.borrow_mut().clear(),
            None => {}
        }
        let hub = Hub::new(life);
        hubs.insert(address.into(), hub.clone());
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

/// One life at one address.
pub(super) struct Hub {
    life: Life,
    connections: RefCell<Vec<Rc<Connection>>>,
    dial: RefCell<Weak<Dial>>,
    freed: Notify,
}

/// A dial under way, as long as anybody waits for it.
struct Dial {
    outcome: watch::Receiver<Option<Outcome>>,
    _task: AbortOnDropHandle<()>,
}

/// `Err(None)`: whoever is there does not speak HTTP/2.
type Outcome = Result<(), Option<DialError>>;

impl Hub {
    fn new(life: Life) -> Rc<Self> {
        let (connections, dial, freed) = (RefCell::default(), RefCell::default(), Notify::new());
        Rc::new(Self { life, connections, dial, freed })
    }

    /// A stream on one of the connections, or on another that `connect` makes.
    pub(super) async fn stream<F>(self: &Rc<Self>, connect: impl Fn() -> F) -> Result<Box<Stream>, SendError>
    where
        F: Future<Output = Result<Rc<Connection>, Option<DialError>>> + 'static,
    {
        let mut dials = 0;
        loop {
            if let Some(stream) = self.take() {
                return Ok(stream);
            }
            if self.connections.borrow().len() >= MAX_CONNECTIONS {
                if timeout(FOR_A_STREAM, self.freed.notified()).await.is_err() {
                    return Err(DialError::NoRoom(io::Error::other("every stream is taken")).into());
                }
                continue;
            }
            dials += 1;
            if dials > MAX_DIALS {
                return Err(SendError::NotHttp2);
            }
            let dial = self.dial(&connect);
            let mut outcome = dial.outcome.clone();
            let outcome = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            match outcome {
                Some(Ok(())) => {}
                Some(Err(Some(error))) => return Err(error.into()),
                Some(Err(None)) | None => return Err(SendError::NotHttp2),
            }
        }
    }

    /// A stream has ended.
    pub(super) fn freed(&self) {
        self.freed.notify_one();
    }

    fn take(self: &Rc<Self>) -> Option<Box<Stream>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_alive());
        // The first that has room: so that others become idle, and close.
        let connection = connections.iter().find(|connection| connection.has_room())?;
        Some(Box::new(Stream::new(connection.clone(), self.clone())))
    }

    /// The dial that is under way, or a new one. It is nobody's own: who leaves takes it from nobody.
    fn dial<F>(self: &Rc<Self>, connect: impl Fn() -> F) -> Rc<Dial>
    where
        F: Future<Output = Result<Rc<Connection>, Option<DialError>>> + 'static,
    {
        if let Some(dial) = self.dial.borrow().upgrade()
            && dial.outcome.borrow().is_none()
        {
            return dial;
        }
        let (told, outcome) = watch::channel(None);
        let (hub, connecting) = (Rc::downgrade(self), connect());
        let task = spawn_local(async move {
            let connected = connecting.await.map(|connection| {
                if let Some(hub) = hub.upgrade() {
                    hub.connections.borrow_mut().push(connection);
                    hub.freed();
                }
            });
            told.send_replace(Some(connected));
        });
        let dial = Rc::new(Dial { outcome, _task: AbortOnDropHandle::new(task) });
        *self.dial.borrow_mut() = Rc::downgrade(&dial);
        dial
    }
}
