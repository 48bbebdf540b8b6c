//! When the sandbox has slept last, as a process in it can tell: at a wake all of them are continued.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

/// Every connection from outside that is older than the last wake was cut by the pause before it (`dev/reset`).
#[derive(Clone, Debug)]
pub(super) struct Wakes(Arc<Mutex<Option<Instant>>>);

impl Wakes {
    pub(super) fn watch() -> io::Result<Self> {
        let mut wakes = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let last = Arc::new(Mutex::new(None));
        let noted = last.clone();
        tokio::spawn(async move {
            while wakes.recv().await.is_some() {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            }
        });
        Ok(Self(last))
    }

    pub(super) fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
