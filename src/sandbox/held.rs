//! The bound on requests held in this process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use metrics::Gauge;

pub(crate) struct Held {
    seats: Arc<AtomicUsize>,
    max: AtomicUsize,
    gauge: Gauge,
}

/// One held request, until dropped.
pub(crate) struct Seat {
    seats: Arc<AtomicUsize>,
    gauge: Gauge,
}

impl Held {
    pub(crate) fn new(max: usize, gauge: Gauge) -> Self {
        Self { seats: Arc::default(), max: max.into(), gauge }
    }

    /// From now on so many; who has a seat keeps it.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// `None` when all are taken.
    pub(crate) fn take_seat(&self) -> Option<Seat> {
        let max = self.max.load(Relaxed);
        let free = |taken| (taken < max).then_some(taken + 1);
        self.seats.fetch_update(Relaxed, Relaxed, free).ok()?;
        self.gauge.increment(1.0);
        Some(Seat { seats: self.seats.clone(), gauge: self.gauge.clone() })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.fetch_sub(1, Relaxed);
        self.gauge.decrement(1.0);
    }
}
