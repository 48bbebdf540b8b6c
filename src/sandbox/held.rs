//! The bounds on requests held in this process: of all clients, and of one.

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
    /// Only of those counted while there was a bound per client.
    by_client: Mutex<HashMap<ClientNet, usize>>,
    gauge: Gauge,
}

/// One held request, until dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// Counted as this client's, too.
    client: Option<ClientNet>,
}

impl Held {
    /// `max_per_client`: 0 is no bound.
    pub(crate) fn new(max: usize, max_per_client: usize, gauge: Gauge) -> Self {
        let seats = Seats { taken: AtomicUsize::new(0), by_client: Mutex::default(), gauge };
        Self { max: max.into(), max_per_client: max_per_client.into(), seats: Arc::new(seats) }
    }

    /// From now on so many; who has a seat keeps it.
    pub(crate) fn set_max(&self, max: usize, max_per_client: usize) {
        self.max.store(max, Relaxed);
        self.max_per_client.store(max_per_client, Relaxed);
    }

    /// `None` when all are taken, or all of this client's.
    pub(crate) fn take_seat(&self, client: ClientNet) -> Option<Seat> {
        let max_per_client = self.max_per_client.load(Relaxed);
        let counted = (max_per_client > 0).then_some(client);
        if counted.is_some() && !self.seats.count(client, max_per_client) {
            return None;
        }
        let max = self.max.load(Relaxed);
        let free = |taken| (taken < max).then_some(taken + 1);
        if self.seats.taken.fetch_update(Relaxed, Relaxed, free).is_err() {
            if let Some(client) = counted {
                self.seats.uncount(client);
            }
            return None;
        }
        self.seats.gauge.increment(1.0);
        Some(Seat { seats: self.seats.clone(), client: counted })
    }
}

impl Seats {
    fn count(&self, client: ClientNet, max: usize) -> bool {
        let mut by_client = self.by_client();
        let taken = by_client.entry(client).or_default();
        let free = *taken < max;
        *taken += usize::from(free);
        free
    }

    fn uncount(&self, client: ClientNet) {
        if let Entry::Occupied(mut taken) = self.by_client().entry(client) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }

    fn by_client(&self) -> MutexGuard<'_, HashMap<ClientNet, usize>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.fetch_sub(1, Relaxed);
        self.seats.gauge.decrement(1.0);
        if let Some(client) = self.client {
            self.seats.uncount(client);
        }
    }
}
