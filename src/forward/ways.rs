//! How many connections to nodes and sandboxes this process has: fewer than it has descriptors for. Over HTTP/2 a
//! hundred clients can ask for more; then they wait or are told so, and clients are still accepted and the control
//! plane still reached.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use metrics::Gauge;

use crate::telemetry::Gauged;

/// Of all workers.
#[derive(Clone)]
pub(crate) struct Ways {
    open: Arc<AtomicUsize>,
    most: usize,
    gauge: Gauge,
}

/// One connection, or the dial for it, until dropped.
pub(crate) struct Way {
    open: Arc<AtomicUsize>,
    gauge: Gauge,
    counted: Option<Gauged>,
}

impl Ways {
    pub(crate) fn new(most: usize, gauge: Gauge) -> Self {
        Self { open: Arc::default(), most, gauge }
    }

    /// Whether there is room for another one.
    pub(super) fn have_room(&self) -> bool {
        self.open.load(Relaxed) < self.most
    }

    /// A place for one, before it is dialled. `None`: there is no room.
    pub(super) fn take(&self) -> Option<Way> {
        let taken = self.open.fetch_add(1, Relaxed);
        let way = Way { open: self.open.clone(), gauge: self.gauge.clone(), counted: None };
        // Otherwise given back at once.
        (taken < self.most).then_some(way)
    }
}

impl Way {
    /// The connection stands.
    pub(super) fn opened(mut self) -> Self {
        self.counted = Some(Gauged::new(&self.gauge));
        self
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}
