//! Many who want to know the same at once: what one of them reads is good for all who asked before it began.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use tokio::task::spawn_blocking;

/// Readings, one at a time of each thing, also where nobody waits for one any more.
pub(super) struct Rounds<K, T> {
    things: Arc<Things<K, T>>,
    count: AtomicU64,
}

/// Those that somebody waits for, or that are being read.
type Things<K, T> = Mutex<HashMap<K, Arc<Thing<T>>>>;

struct Thing<T> {
    /// Readings that have begun.
    begun: AtomicU64,
    /// The last one that came to its end, by its number, and what it told. Held by whoever reads.
    last: Arc<tokio::sync::Mutex<(u64, Option<Arc<T>>)>>,
}

impl<K, T> Default for Rounds<K, T> {
    fn default() -> Self {
        Self { things: Arc::default(), count: AtomicU64::new(0) }
    }
}

impl<K: Eq + Hash + Copy + Send + 'static, T: Send + Sync + 'static> Rounds<K, T> {
    /// What a reading told that began after this was asked. `None`: the runtime is ending.
    pub(super) async fn read(&self, key: K, how: impl FnOnce() -> T + Send + 'static) -> Option<Arc<T>> {
        let reader = Interest::new(&self.things, key);
        let thing = reader.thing.as_deref()?;
        let before = thing.begun.load(SeqCst);
        // In the order in which they asked.
        let mut last = thing.last.clone().lock_owned().await;
        if last.0 > before {
            return last.1.clone();
        }
        let number = thing.begun.fetch_add(1, SeqCst) + 1;
        self.count.fetch_add(1, SeqCst);
        // It goes on when who asked leaves: what keeps others from reading beside it is its own.
        let reading = Interest::new(&self.things, key);
        let told = spawn_blocking(move || {
            let told = Arc::new(how());
            *last = (number, Some(told.clone()));
            // In this order: whoever is next finds nothing of this one.
            drop((reading, last));
            told
        });
        told.await.ok()
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }
}

/// That of somebody who waits, or of a reading. The last one forgets the thing, also where who waits leaves before
/// being told.
struct Interest<K: Eq + Hash, T> {
    things: Arc<Things<K, T>>,
    key: K,
    thing: Option<Arc<Thing<T>>>,
}

impl<K: Eq + Hash + Copy, T> Interest<K, T> {
    fn new(things: &Arc<Things<K, T>>, key: K) -> Self {
        let thing = things.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        Self { things: things.clone(), key, thing: Some(thing) }
    }
}

impl<K: Eq + Hash, T> Drop for Interest<K, T> {
    fn drop(&mut self) {
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        // Given back under the lock, as it was taken: of two who leave together, one is the last.
        self.thing = None;
        if things.get(&self.key).is_some_and(|thing| Arc::strong_count(thing) == 1) {
            things.remove(&self.key);
        }
    }
}

impl<T> Default for Thing<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::{future::join_all, poll};

    use super::*;

    #[tokio::test]
    async fn who_asks_while_somebody_reads_gets_what_is_read_next_and_all_of_them_the_same() {
        let rounds = Rounds::<u8, u64>::default();
        let (go, gate) = mpsc::channel();
        let mut first = Box::pin(rounds.read(7, move || gate.recv().map_or(0, |()| 1)));
        assert!(poll!(&mut first).is_pending());
        let mut others: Vec<_> = (0..300).map(|_| Box::pin(rounds.read(7, || 2))).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        assert_eq!(rounds.read(8, || 3).await.as_deref(), Some(&3), "another thing waits for nobody");
        go.send(()).expect("a reader");
        let (first, others) = tokio::join!(first, join_all(others));
        assert_eq!(first.as_deref(), Some(&1));
        assert!(others.iter().all(|told| told.as_deref() == Some(&2)));
        assert_eq!(rounds.count(), 3);
        assert!(rounds.things.lock().expect("no panic").is_empty(), "nothing is remembered");
        assert_eq!(rounds.read(7, || 4).await.as_deref(), Some(&4));
    }

    #[tokio::test]
    async fn readers_that_come_and_leave_begin_no_reading_beside_the_one_that_goes_on() {
        let rounds = Rounds::<u8, u64>::default();
        let (go, gate) = mpsc::channel();
        let mut first = Box::pin(rounds.read(7, move || gate.recv().map_or(0, |()| 1)));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        for _ in 0..10 {
            let mut next = Box::pin(rounds.read(7, || 2));
            assert!(poll!(&mut next).is_pending());
        }
        assert_eq!(rounds.count(), 1);
        go.send(()).expect("it still reads");
        assert_eq!(rounds.read(7, || 3).await.as_deref(), Some(&3));
        assert!(rounds.things.lock().expect("no panic").is_empty(), "nothing is remembered");
    }

    #[tokio::test]
    async fn a_reader_that_leaves_does_not_keep_the_others_waiting() {
        let rounds = Rounds::<u8, u64>::default();
        let (_go, gate) = mpsc::channel::<()>();
        let mut first =
            Box::pin(rounds.read(7, move || gate.recv_timeout(std::time::Duration::ZERO).map_or(1, |()| 0)));
        assert!(poll!(&mut first).is_pending());
        let mut second = Box::pin(rounds.read(7, || 2));
        assert!(poll!(&mut second).is_pending());
        let mut third = Box::pin(rounds.read(7, || 3));
        assert!(poll!(&mut third).is_pending());
        drop(first);
        assert_eq!(second.await.as_deref(), Some(&2));
        assert_eq!(rounds.things.lock().expect("no panic").len(), 1, "somebody waits");
        drop(third);
        assert!(rounds.things.lock().expect("no panic").is_empty(), "nothing is remembered");
    }
}
