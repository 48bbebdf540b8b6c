//! One process's events for everybody who listens. Nothing is kept for a listener but what its channel holds: a
//! slow one holds the process up, as a slow reader of a pipe does, and one that leaves lets it go on. It does not
//! hold up other listeners: once one of them has taken an event, the rest have [`PATIENCE`] left, and whoever still
//! has no room for it then is turned out. Without listeners nothing is kept at all.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{awake::awake_for, messages::Event};
use crate::dev::envd::rpc::{Code, Error};

/// Events on the way to one listener; with chunks of 32 KiB, 256 KiB at most.
const ON_THE_WAY: usize = 8;
/// How much longer than another a listener may take for an event.
const PATIENCE: Duration = Duration::from_secs(5);
/// Listeners of one process.
pub(super) const LIMIT: usize = 64;

pub(super) struct Outlets {
    /// `None` after the end.
    listeners: Mutex<Option<Vec<Listener>>>,
    /// Events are told one after the other.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Listener {
    events: mpsc::Sender<Event>,
    turned_out: Arc<AtomicBool>,
}

/// A listener's end.
pub(super) struct Heard {
    events: mpsc::Receiver<Event>,
    turned_out: Arc<AtomicBool>,
}

/// Why nobody more can listen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Over,
    Full,
}

impl Heard {
    /// The next event; `None` after the last, or after the error that says why there are no more.
    pub(super) async fn next(&mut self) -> Option<Result<Event, Error>> {
        match self.events.recv().await {
            Some(event) => Some(Ok(event)),
            None if self.turned_out.swap(false, Ordering::Relaxed) => {
                let why = "this listener read too slowly for the others: connect again";
                Some(Err(Error::new(Code::Aborted, why)))
            }
            None => None,
        }
    }
}

fn listener() -> (Listener, Heard) {
    let (send, events) = mpsc::channel(ON_THE_WAY);
    let turned_out = Arc::<AtomicBool>::default();
    (Listener { events: send, turned_out: turned_out.clone() }, Heard { events, turned_out })
}

impl Outlets {
    /// With its first listener.
    pub(super) fn new() -> (Self, Heard) {
        let (first, heard) = listener();
        (Self { listeners: Mutex::new(Some(vec![first])), turn: tokio::sync::Mutex::default() }, heard)
    }

    fn listeners(&self) -> MutexGuard<'_, Option<Vec<Listener>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that comes from now on.
    pub(super) fn listen(&self) -> Result<Heard, Refused> {
        let mut listeners = self.listeners();
        let listeners = listeners.as_mut().ok_or(Refused::Over)?;
        // A silent process would keep those that have left for ever.
        listeners.retain(|listener| !listener.events.is_closed());
        if listeners.len() == LIMIT {
            return Err(Refused::Full);
        }
        let (listener, heard) = listener();
        listeners.push(listener);
        Ok(heard)
    }

    /// Returns when every listener has taken it, is gone, or is turned out.
    pub(super) async fn tell(&self, event: Event) {
        let _turn = self.turn.lock().await;
        let all = self.listeners().clone().unwrap_or_default();
        let mut slow = vec![true; all.len()];
        let mut telling: FuturesUnordered<_> = all
            .iter()
            .enumerate()
            .map(|(number, listener)| {
                let event = event.clone();
                async move { (number, listener.events.send(event).await.is_ok()) }
            })
            .collect();
        let mut late = std::pin::pin!(awake_for(None));
        let mut somebody_has_it = false;
        loop {
            tokio::select! {
                biased;
                told = telling.next() => {
                    let Some((number, taken)) = told else { break };
                    slow[number] = false;
                    if taken && !somebody_has_it {
                        somebody_has_it = true;
                        late.set(awake_for(Some(PATIENCE)));
                    }
                }
                () = &mut late => break,
            }
        }
        drop(telling);
        for (listener, _) in all.iter().zip(slow).filter(|(_, slow)| *slow) {
            listener.turned_out.store(true, Ordering::Relaxed);
        }
        if let Some(listeners) = self.listeners().as_mut() {
            let stays =
                |listener: &Listener| !listener.events.is_closed() && !listener.turned_out.load(Ordering::Relaxed);
            listeners.retain(stays);
        }
    }

    /// The last event. New listeners are turned away before anybody hears it.
    pub(super) async fn end(&self, event: Event) {
        let listeners = self.listeners().take().unwrap_or_default();
        // Each stream ends when its own listener has the event, whoever else has not.
        let telling = listeners.into_iter().map(|listener| {
            let event = event.clone();
            async move { listener.events.send(event).await }
        });
        join_all(telling).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    fn pid(heard: Option<Result<Event, Error>>) -> Option<u32> {
        match heard?.expect("an event") {
            Event::Start { pid } => Some(pid),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_waits_for_who_does_not_but_a_while() {
        let (outlets, mut idle) = Outlets::new();
        let mut busy = outlets.listen().expect("room");
        let begun = Instant::now();
        let tell_all = async {
            for pid in 0..20 {
                outlets.tell(Event::Start { pid }).await;
            }
        };
        let read = async {
            for number in 0..20 {
                assert_eq!(pid(busy.next().await), Some(number));
            }
        };
        tokio::join!(tell_all, read);
        assert_eq!(begun.elapsed(), PATIENCE, "once");
        for number in 0..8 {
            assert_eq!(pid(idle.next().await), Some(number), "what came before is not lost");
        }
        let why = idle.next().await.expect("a reason").expect_err("an error");
        assert_eq!(why.code, Code::Aborted);
        assert!(idle.next().await.is_none());
        outlets.end(Event::Keepalive {}).await;
        assert!(matches!(busy.next().await, Some(Ok(Event::Keepalive {}))));
        assert!(busy.next().await.is_none());
        assert_eq!(outlets.listen().err(), Some(Refused::Over));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_reads_nobody_is_turned_out() {
        let (outlets, mut idle) = Outlets::new();
        for pid in 0..8 {
            outlets.tell(Event::Start { pid }).await;
        }
        let mut more = std::pin::pin!(outlets.tell(Event::Start { pid: 8 }));
        assert!(timeout(PATIENCE * 100, &mut more).await.is_err(), "it holds the process up");
        assert_eq!(pid(idle.next().await), Some(0));
        more.await;
        // Nor does one that is not done keep the last event from the others.
        let mut late = outlets.listen().expect("room");
        let mut end = std::pin::pin!(outlets.end(Event::Keepalive {}));
        assert!(timeout(PATIENCE, &mut end).await.is_err());
        assert!(matches!(late.next().await, Some(Ok(Event::Keepalive {}))));
        assert!(late.next().await.is_none());
    }

    #[tokio::test]
    async fn those_who_left_a_silent_process_take_no_room() {
        let (outlets, _first) = Outlets::new();
        for _ in 0..LIMIT * 3 {
            outlets.listen().expect("room");
        }
        let all: Vec<_> = std::iter::from_fn(|| outlets.listen().ok()).collect();
        assert_eq!((all.len(), outlets.listen().err()), (LIMIT - 1, Some(Refused::Full)));
    }
}
