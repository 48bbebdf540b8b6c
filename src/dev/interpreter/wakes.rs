//! How often the sandbox has slept, as a process in it can tell: at a wake all of them are continued.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Every connection from outside that is older than the last wake was cut by the pause before it (`dev/reset`).
#[derive(Clone, Debug)]
pub(super) struct Wakes(Arc<AtomicU64>);

impl Wakes {
    pub(super) fn watch() -> io::Result<Self> {
        let mut wakes = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        tokio::spawn(async move {
            while wakes.recv().await.is_some() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self(count))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
