//! Turns to ask the control plane: so many calls at once, and whoever waits for one is served round-robin over the
//! clients on whose behalf it is. A client's burst keeps its own calls waiting, and nobody else's.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::types::ClientNet;

#[cfg(test)]
mod tests;

/// On whose behalf; `None`: nobody's in particular.
type Who = Option<ClientNet>;

/// So many at once.
pub(crate) struct Turns(Mutex<Desk>);

struct Desk {
    max: usize,
    taken: usize,
    clients: HashMap<Who, Client>,
    /// Clients with somebody waiting, the next to be served first.
    order: VecDeque<Who>,
    serial: u64,
}

#[derive(Default)]
struct Client {
    taken: usize,
    /// By the number drawn when they came.
    waiting: BTreeMap<u64, oneshot::Sender<Turn>>,
}

/// One call may be made, until dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    who: Who,
}

/// A place in the queue, given up when dropped.
struct Queued<'a> {
    turns: &'a Turns,
    who: Who,
    number: u64,
}

impl Turns {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (clients, order) = (HashMap::new(), VecDeque::new());
        Arc::new(Self(Mutex::new(Desk { max, taken: 0, clients, order, serial: 0 })))
    }

    /// From now on so many; who has a turn keeps it.
    pub(crate) fn set_max(self: &Arc<Self>, max: usize) {
        self.desk().max = max;
        self.call();
    }

    /// Waits for a turn. Dropped before, it gives up its place.
    pub(crate) async fn take(self: &Arc<Self>, who: Who) -> Turn {
        let (sender, receiver) = oneshot::channel();
        let number = self.desk().queue(who, sender);
        let _queued = Queued { turns: self, who, number };
        self.call();
        // Nobody drops a sender without a turn but the one who queued.
        receiver.await.unwrap_or_else(|_| Turn { turns: Self::new(0), who })
    }

    /// Calls as many as there is room for.
    fn call(self: &Arc<Self>) {
        let mut called = Vec::new();
        {
            let mut desk = self.desk();
            while let Some((who, sender)) = desk.next() {
                called.push((sender, Turn { turns: self.clone(), who }));
            }
        }
        // A turn that nobody takes any more is given back at once, which needs the desk.
        for (sender, turn) in called {
            let _ = sender.send(turn);
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing in here panics halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn queue(&mut self, who: Who, sender: oneshot::Sender<Turn>) -> u64 {
        self.serial += 1;
        let client = self.clients.entry(who).or_default();
        if client.waiting.is_empty() {
            self.order.push_back(who);
        }
        client.waiting.insert(self.serial, sender);
        self.serial
    }

    /// A quarter is never one client's alone: calls that hang on its behalf leave room for others.
    fn share(&self) -> usize {
        self.max - self.max / 4
    }

    /// Who is next, if there is room.
    fn next(&mut self) -> Option<(Who, oneshot::Sender<Turn>)> {
        if self.taken >= self.max {
            return None;
        }
        let share = self.share();
        let may = |who: &Who| self.clients.get(who).is_some_and(|client| client.taken < share);
        let at = self.order.iter().position(may)?;
        let who = self.order.remove(at)?;
        let client = self.clients.get_mut(&who)?;
        let (_, sender) = client.waiting.pop_first()?;
        if !client.waiting.is_empty() {
            self.order.push_back(who);
        }
        client.taken += 1;
        self.taken += 1;
        Some((who, sender))
    }

    fn forget_if_idle(&mut self, who: Who) {
        if self.clients.get(&who).is_some_and(|client| client.taken == 0 && client.waiting.is_empty()) {
            self.clients.remove(&who);
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut desk = self.turns.desk();
        let Some(client) = desk.clients.get_mut(&self.who) else { return };
        // Called already, it is not there.
        if client.waiting.remove(&self.number).is_some() && client.waiting.is_empty() {
            desk.order.retain(|who| *who != self.who);
            desk.forget_if_idle(self.who);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut desk = self.turns.desk();
            let Some(client) = desk.clients.get_mut(&self.who) else { return };
            client.taken -= 1;
            desk.taken -= 1;
            desk.forget_if_idle(self.who);
        }
        self.turns.call();
    }
}
