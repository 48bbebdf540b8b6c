//! The bounds on requests held in this process: of all clients, and of each.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use metrics::Gauge;

use crate::types::ClientNet;

pub(crate) struct Held {
    max: AtomicUsize,
    /// 0: no bound.
    max_per_client: AtomicUsize,
    seats: Arc<Seats>,
}

struct Seats {
    taken: AtomicUsize,
    gauge: Gauge,
    /// Also while there is no bound: one may be set when there is a crowd.
    by_client: Mutex<HashMap<ClientNet, usize>>,
}

/// One held request, until dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    client: ClientNet,
}

impl Held {
    /// `max_per_client`: 0 is no bound.
    pub(crate) fn new(max: usize, max_per_client: usize, gauge: Gauge) -> Self {
        let seats = Seats { taken: AtomicUsize::new(0), gauge, by_client: Mutex::default() };
        Self { max: max.into(), max_per_client: max_per_client.into(), seats: Arc::new(seats) }
    }

    /// From now on so many; who has a seat keeps it.
    pub(crate) fn set_max(&self, max: usize, max_per_client: usize) {
        self.max.store(max, Relaxed);
        self.max_per_client.store(max_per_client, Relaxed);
    }

    /// `None` when all are taken, or all of this client's.
    pub(crate) fn take_seat(&self, client: ClientNet) -> Option<Seat> {
        let max = self.max.load(Relaxed);
        let free = |taken| (taken < max).then_some(taken + 1);
        self.seats.taken.fetch_update(Relaxed, Relaxed, free).ok()?;
        let max_per_client = Some(self.max_per_client.load(Relaxed)).filter(|max| *max > 0);
        if !self.seats.take_one_of(client, max_per_client.unwrap_or(usize::MAX)) {
            self.seats.taken.fetch_sub(1, Relaxed);
            return None;
        }
        self.seats.gauge.increment(1.0);
        Some(Seat { seats: self.seats.clone(), client })
    }
}

impl Seats {
    fn take_one_of(&self, client: ClientNet, max: usize) -> bool {
        let mut by_client = self.by_client();
        let taken = by_client.get(&client).copied().unwrap_or_default();
        let free = taken < max;
        if free {
            by_client.insert(client, taken + 1);
        }
        free
    }

    fn by_client(&self) -> MutexGuard<'_, HashMap<ClientNet, usize>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.gauge.decrement(1.0);
        self.seats.taken.fetch_sub(1, Relaxed);
        if let Entry::Occupied(mut taken) = self.seats.by_client().entry(self.client) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}
