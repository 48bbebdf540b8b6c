//! The bound on handshakes that a worker has not finished.
//!
//! A queue would let whoever only connects lock everybody else out for as long as a handshake may take. Here the
//! next one always begins, and where there are too many it takes the place of the oldest: a client that answers
//! is done long before it is the oldest, and who only connects displaces nobody but those who do the same.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use tokio::sync::oneshot;

/// However many places there are: a thousand handshakes take some MiB, and no worker finishes so many a second.
const MOST: usize = 1024;

#[derive(Default)]
pub(in crate::edge) struct Handshakes {
    next: Cell<u64>,
    /// By age; whoever loses its sender has lost its place.
    underway: RefCell<BTreeMap<u64, oneshot::Sender<()>>>,
}

/// One handshake's place, until dropped.
pub(in crate::edge) struct Underway {
    all: Rc<Handshakes>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl Handshakes {
    /// `places`: of `server.max_connections`, as many as are this worker's share. A quarter of them at most is for
    /// handshakes, so that those do not fill the house either.
    pub(in crate::edge) fn begin(self: &Rc<Self>, places: usize) -> Underway {
        let most = (places / 4).clamp(1, MOST);
        let mut underway = self.underway.borrow_mut();
        while underway.len() >= most {
            underway.pop_first();
        }
        let (sender, displaced) = oneshot::channel();
        let number = self.next.replace(self.next.get() + 1);
        underway.insert(number, sender);
        Underway { all: self.clone(), number, displaced }
    }
}

impl Underway {
    /// Returns when a younger one has this one's place.
    pub(in crate::edge) async fn displaced(&mut self) {
        let _ = (&mut self.displaced).await;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.all.underway.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    #[test]
    fn the_oldest_makes_room_and_whoever_is_done_gives_its_place_back() {
        let all = Rc::new(Handshakes::default());
        let is_displaced = |one: &mut Underway| one.displaced.try_recv() == Err(TryRecvError::Closed);
        let (mut first, second, mut third) = (all.begin(12), all.begin(12), all.begin(12));
        assert!(!is_displaced(&mut first));
        drop(second);
        let mut fourth = all.begin(12);
        assert!(![&mut first, &mut third, &mut fourth].map(is_displaced).contains(&true));
        let mut fifth = all.begin(12);
        assert!(is_displaced(&mut first));
        // With fewer places, the younger still begins.
        let mut sixth = all.begin(0);
        assert_eq!([&mut third, &mut fourth, &mut fifth, &mut sixth].map(is_displaced), [true, true, true, false]);
        drop((first, third, fourth, fifth, sixth));
        assert!(all.underway.borrow().is_empty());
    }
}
