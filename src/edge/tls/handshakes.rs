//! The bound on handshakes that a worker has not finished.
//!
//! A queue would let whoever only connects lock everybody else out for as long as a handshake may take. Here the
//! next one always begins, and where there are too many, the oldest makes room: of those that have said nothing,
//! while there are any. So who only connects displaces those who do the same; and a client that answers is done
//! long before it is the oldest of those that speak.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use tokio::sync::oneshot;

/// However many places there are: each may send 64 KiB before it is refused.
const MOST: usize = 1024;

#[derive(Default)]
pub(in crate::edge) struct Handshakes {
    next: Cell<u64>,
    underway: RefCell<All>,
}

/// By age; whoever loses its sender has lost its place.
#[derive(Default)]
struct All {
    silent: BTreeMap<u64, oneshot::Sender<()>>,
    speaking: BTreeMap<u64, oneshot::Sender<()>>,
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
        let All { silent, speaking } = &mut *self.underway.borrow_mut();
        while silent.len() + speaking.len() >= most {
            let _oldest = silent.pop_first().or_else(|| speaking.pop_first());
        }
        let (sender, displaced) = oneshot::channel();
        let number = self.next.replace(self.next.get() + 1);
        silent.insert(number, sender);
        Underway { all: self.clone(), number, displaced }
    }
}

impl Underway {
    /// Returns when a younger one has this one's place.
    pub(in crate::edge) async fn displaced(&mut self) {
        let _ = (&mut self.displaced).await;
    }

    /// To be told that the client has said something.
    pub(in crate::edge) fn speaks(&self) -> impl FnOnce() + use<> {
        let number = self.number;
        let all = self.all.clone();
        move || {
            let All { silent, speaking } = &mut *all.underway.borrow_mut();
            speaking.extend(silent.remove_entry(&number));
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let All { silent, speaking } = &mut *self.all.underway.borrow_mut();
        silent.remove(&self.number);
        speaking.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    fn is_displaced(one: &mut Underway) -> bool {
        one.displaced.try_recv() == Err(TryRecvError::Closed)
    }

    #[test]
    fn the_oldest_makes_room_and_whoever_is_done_gives_its_place_back() {
        let all = Rc::new(Handshakes::default());
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
        // Whom nobody waits for any more changes nothing.
        third.speaks()();
        drop((first, third, fourth, fifth, sixth));
        let left = all.underway.borrow();
        assert!(left.silent.is_empty() && left.speaking.is_empty());
    }

    #[test]
    fn who_says_nothing_makes_room_before_those_that_speak() {
        let all = Rc::new(Handshakes::default());
        let (mut first, mut second, mut third) = (all.begin(12), all.begin(12), all.begin(12));
        first.speaks()();
        third.speaks()();
        let mut fourth = all.begin(12);
        assert_eq!([&mut first, &mut second, &mut third, &mut fourth].map(is_displaced), [false, true, false, false]);
        fourth.speaks()();
        let mut fifth = all.begin(12);
        assert_eq!([&mut first, &mut third, &mut fourth, &mut fifth].map(is_displaced), [true, false, false, false]);
    }
}
