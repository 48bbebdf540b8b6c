//! One flight, many waiters: every ending is told to all of them.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use super::promises::Promise;
use crate::types::ClientNet;

/// How it stands with a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Flying,
    /// Still flying; the control plane last said "still transitioning".
    Transitioning,
    Landed(Ending),
}

/// How a flight ended, as far as those who wait must know to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The sandbox was woken.
    Woken,
    /// The control plane said "still transitioning" to the end.
    Transitioning,
    /// Any other.
    Told,
}

/// Rung once, when the flight lands.
#[derive(Clone)]
pub(crate) struct Bell(watch::Sender<State>);

struct State {
    signal: Signal,
    exit: Exit,
    kept: Mutex<Kept>,
    /// Told when another client has joined.
    joined: Arc<Notify>,
    /// Told when somebody who may wake waits no longer, or something was promised.
    changed: Arc<Notify>,
}

/// Whether a flight that waits for its turn goes on, and in whose queues it stands.
#[derive(Default)]
struct Kept {
    /// How many wait who may wake, or may when a lookup has ended.
    wanting: usize,
    /// Somebody was told of it, and is to find it done.
    promise: Option<Promise>,
    /// The control plane was asked.
    asked: bool,
    /// On whose behalf it waits for a turn, besides the one who caused it.
    clients: Vec<ClientNet>,
}

/// Clients in whose queues one flight stands. More gain little.
const MAX_QUEUES: usize = 16;

/// The door through which those go who were held for one wake, whichever of its bells they heard: counts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exit(Arc<AtomicU32>);

impl Bell {
    pub(crate) fn new(exit: Exit) -> Self {
        Self(watch::Sender::new(State {
            signal: Signal::Flying,
            exit,
            kept: Mutex::default(),
            joined: Arc::default(),
            changed: Arc::default(),
        }))
    }

    /// Another one, for those held for the same wake.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.0.borrow().exit.clone())
    }

    pub(crate) fn ring(&self, ending: Ending) {
        self.0.send_modify(|state| state.signal = Signal::Landed(ending));
    }

    /// Tells those who wait that the sandbox is between states; they go on waiting.
    pub(crate) fn transitioning(&self) {
        self.0.send_if_modified(|state| {
            let flying = state.signal == Signal::Flying;
            if flying {
                state.signal = Signal::Transitioning;
            }
            flying
        });
    }

    /// A place among those who wait.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { state: self.0.subscribe(), recheck: None, for_wake: false, own: false, wanting: false, place: None }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.receiver_count()
    }

    /// Returns when nobody waits any more who may wake, and nobody was promised the flight, or that is too long ago.
    pub(crate) async fn abandoned(&self) {
        let changed = self.0.borrow().changed.clone();
        loop {
            let change = changed.notified();
            let (wanting, promised) = {
                let state = self.0.borrow();
                let kept = state.kept();
                (kept.wanting, kept.promise.as_ref().map(Promise::until))
            };
            match promised {
                _ if wanting > 0 => change.await,
                Some(until) if until > Instant::now() => {
                    let _ = timeout_at(until, change).await;
                }
                _ => return,
            }
        }
    }

    /// The control plane is being asked: nothing is promised any more but that.
    pub(crate) fn asked(&self) {
        self.0.borrow().kept().asked = true;
    }

    /// Clients that joined, from the one with this number on.
    pub(crate) fn clients(&self, from: usize) -> Vec<ClientNet> {
        self.0.borrow().kept().clients.get(from..).unwrap_or_default().to_vec()
    }

    /// Returns when it may be that another client has joined.
    pub(crate) async fn joined(&self) {
        let joined = self.0.borrow().joined.clone();
        joined.notified().await;
    }

    #[cfg(test)]
    pub(crate) fn rings_for(&self, ticket: &Ticket) -> bool {
        self.0.subscribe().same_channel(&ticket.state)
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bell({:?}, {} waiting)", self.0.borrow().signal, self.waiting())
    }
}

impl State {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter's half of a [`Bell`]: counted until dropped.
pub(crate) struct Ticket {
    state: watch::Receiver<State>,
    /// Ask again then, though nothing rang.
    recheck: Option<Instant>,
    /// It waits for a wake, not for a lookup.
    pub(crate) for_wake: bool,
    /// That wake is one for its own credentials.
    own: bool,
    /// It counts among those for whom the wake is.
    wanting: bool,
    /// Given with a request's first ticket, to be kept until it is held no longer.
    pub(crate) place: Option<Place>,
}

/// One request's place among those held for a sandbox, until dropped: also while it asks again, between
/// one flight and the next.
#[derive(Clone, Default)]
pub(crate) struct Place(Arc<()>);

impl Place {
    /// How many copies there are besides the entry's own.
    pub(crate) fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} taken", self.taken())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.wanting {
            let state = self.state.borrow();
            let mut kept = state.kept();
            kept.wanting -= 1;
            state.changed.notify_one();
            if kept.wanting == 0 {
                // Also those who let others go first.
                state.changed.notify_waiters();
            }
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({:?})", self.state.borrow().signal)
    }
}

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// Ask again: the flight landed (or it is time to look).
    Landed(Ending),
    /// The waiter's own time is over.
    TooLate,
}

impl Ticket {
    pub(crate) fn for_wake(mut self) -> Self {
        self.for_wake = true;
        self
    }

    /// The same, for the credentials of whoever waits.
    pub(crate) fn for_own_wake(mut self) -> Self {
        (self.for_wake, self.own) = (true, true);
        self
    }

    pub(crate) fn recheck(mut self, at: Option<Instant>) -> Self {
        self.recheck = at;
        self
    }

    /// It may wake: the wake is for it, too, and its client's turn is as good as that of whoever caused it; after a
    /// lookup it goes first. To be called before the flight is sent off.
    pub(crate) fn want(&mut self, client: ClientNet) {
        // Not for a wake of others' credentials.
        if self.wanting || (self.for_wake && !self.own) {
            return;
        }
        self.wanting = true;
        let state = self.state.borrow();
        let mut kept = state.kept();
        kept.wanting += 1;
        if self.own && !kept.asked && kept.clients.len() < MAX_QUEUES && !kept.clients.contains(&client) {
            kept.clients.push(client);
            state.joined.notify_one();
        }
    }

    /// Waits for the landing, but not beyond `deadline`.
    pub(crate) fn wait(&mut self, deadline: Instant) -> impl Future<Output = Rung> {
        let until = self.recheck.map_or(deadline, |at| at.min(deadline));
        let early = until < deadline;
        let landed = |state: &State| matches!(state.signal, Signal::Landed(_));
        // An `async fn` would keep its arguments twice, in each of the thousands that wait.
        async move {
            match timeout_at(until, self.state.wait_for(landed)).await {
                Ok(Ok(state)) => match state.signal {
                    Signal::Landed(ending) => Rung::Landed(ending),
                    Signal::Flying | Signal::Transitioning => Rung::Landed(Ending::Told),
                },
                // The entry is gone with its bell: ask the next one.
                Ok(Err(_)) => Rung::Landed(Ending::Told),
                Err(_) if early => Rung::Landed(Ending::Told),
                Err(_) => Rung::TooLate,
            }
        }
    }

    /// Once it has landed: waits, but not beyond `deadline`, until those have asked again who may wake.
    pub(crate) async fn let_others_first(&self, deadline: Instant) {
        let changed = self.state.borrow().changed.clone();
        loop {
            let change = changed.notified();
            let first = {
                let state = self.state.borrow();
                matches!(state.signal, Signal::Landed(_)) && state.kept().wanting > 0
            };
            if !first || timeout_at(deadline, change).await.is_err() {
                return;
            }
        }
    }

    /// Its request was told of the flight, which goes on without it for a while. `None`: too much was promised already.
    pub(crate) fn promise(&self, promise: Option<Promise>) {
        if !(self.own && self.wanting) {
            return;
        }
        let state = self.state.borrow();
        let mut kept = state.kept();
        // The last one lasts the longest.
        if promise.is_some() {
            kept.promise = promise;
            state.changed.notify_one();
        }
    }

    /// How many of those held for this wake have gone before; one more has from now on.
    pub(crate) fn go(&self) -> u32 {
        self.state.borrow().exit.0.fetch_add(1, Relaxed)
    }

    /// Whether the control plane last said "still transitioning".
    pub(crate) fn transitioning(&self) -> bool {
        self.state.borrow().signal == Signal::Transitioning
    }

    /// `Some` once the flight landed.
    #[cfg(test)]
    pub(crate) fn landed(&self) -> Option<Ending> {
        match self.state.borrow().signal {
            Signal::Landed(ending) => Some(ending),
            Signal::Flying | Signal::Transitioning => None,
        }
    }
}
