//! How many exchanges one sandbox has at once, over all workers (`upstream.max_connections_per_sandbox`).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use dashmap::DashMap;

use crate::types::SandboxId;

/// Counts exchanges by sandbox.
pub(crate) struct Quota {
    max: AtomicUsize,
    taken: Arc<DashMap<SandboxId, usize>>,
}

/// One exchange, until dropped.
pub(crate) struct Slot {
    sandbox: SandboxId,
    taken: Arc<DashMap<SandboxId, usize>>,
}

impl Quota {
    /// `max` 0 = no bound.
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.into(), taken: Arc::default() }
    }

    /// From now on so many; what is under way goes on.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// `Err` when the sandbox has as many as it may; `Ok(None)` when there is no bound.
    pub(crate) fn take(&self, sandbox: &SandboxId) -> Result<Option<Slot>, ()> {
        let max = self.max.load(Relaxed);
        if max == 0 {
            return Ok(None);
        }
        let mut taken = self.taken.entry(sandbox.clone()).or_default();
        if *taken >= max {
            return Err(());
        }
        *taken += 1;
        Ok(Some(Slot { sandbox: sandbox.clone(), taken: self.taken.clone() }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.taken.remove_if_mut(&self.sandbox, |_, taken| {
            *taken -= 1;
            *taken == 0
        });
    }
}
