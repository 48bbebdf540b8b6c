//! One process's events for everybody who listens. Nothing is kept for a listener but what its channel holds: a
//! slow one holds the process up, as a slow reader of a pipe does, and one that leaves lets it go on. Without
//! listeners nothing is kept at all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::messages::Event;

/// Events on the way to one listener; with chunks of 32 KiB, 256 KiB at most.
const ON_THE_WAY: usize = 8;

#[derive(Default)]
pub(super) struct Outlets {
    /// `None` after the end.
    listeners: Mutex<Option<Vec<mpsc::Sender<Event>>>>,
}

impl Outlets {
    pub(super) fn new() -> Self {
        Self { listeners: Mutex::new(Some(Vec::new())) }
    }

    fn listeners(&self) -> MutexGuard<'_, Option<Vec<mpsc::Sender<Event>>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that comes from now on; `None` when nothing will.
    pub(super) fn listen(&self) -> Option<mpsc::Receiver<Event>> {
        let (send, receive) = mpsc::channel(ON_THE_WAY);
        self.listeners().as_mut()?.push(send);
        Some(receive)
    }

    /// Returns when every listener has taken it or is gone.
    pub(super) async fn tell(&self, event: Event) {
        let listeners = self.listeners().clone().unwrap_or_default();
        let told = join_all(listeners.iter().map(|listener| listener.send(event.clone()))).await;
        if told.iter().any(Result::is_err)
            && let Some(listeners) = self.listeners().as_mut()
        {
            listeners.retain(|listener| !listener.is_closed());
        }
    }

    /// The last event. New listeners are turned away before anybody hears it.
    pub(super) async fn end(&self, event: Event) {
        let listeners = self.listeners().take().unwrap_or_default();
        join_all(listeners.iter().map(|listener| listener.send(event.clone()))).await;
    }
}
