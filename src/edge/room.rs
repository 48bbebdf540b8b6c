//! Places for client connections (`server.max_connections`), whose number may change while they are taken.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

pub(crate) struct Room {
    places: AtomicUsize,
    taken: AtomicUsize,
    /// A place became free, or there are more. One waits at most: whoever accepts.
    changed: Notify,
    resized: Notify,
}

/// One connection's place, until dropped.
pub(crate) struct Place(Arc<Room>);

impl Place {
    /// How many places there are, taken or not.
    pub(crate) fn of(&self) -> usize {
        self.0.places.load(Relaxed)
    }
}

impl Room {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places: places.into(), taken: 0.into(), changed: Notify::new(), resized: Notify::new() })
    }

    /// From now on so many. Who has a place keeps it: with fewer, nobody else gets one until enough have left.
    pub(crate) fn resize(&self, places: usize) {
        self.places.store(places, Relaxed);
        self.changed.notify_one();
        self.resized.notify_one();
    }

    /// Returns when there are more or fewer places: whoever took one in advance shall give it back and ask again.
    pub(crate) async fn resized(&self) {
        self.resized.notified().await;
    }

    /// Waits for a place. For one caller at a time.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        loop {
            if self.taken.load(Relaxed) < self.places.load(Relaxed) {
                self.taken.fetch_add(1, Relaxed);
                return Place(self.clone());
            }
            // A change since the look above is not lost: it is kept for whoever waits next.
            self.changed.notified().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn places_are_bounded_also_when_their_number_changes() {
        let room = Room::new(2);
        let full = async |room: &Arc<Room>| timeout(Duration::from_secs(1), room.take()).await.is_err();
        let (first, second) = (room.take().await, room.take().await);
        assert!(full(&room).await);
        room.resize(1);
        drop(first);
        assert!(full(&room).await, "one is left, and one may be there");
        let waiting = tokio::spawn({
            let room = room.clone();
            async move { room.take().await }
        });
        tokio::task::yield_now().await;
        room.resize(2);
        let third = waiting.await.expect("no panic");
        assert!(full(&room).await);
        drop((second, third));
        let _both = (room.take().await, room.take().await);
    }
}
