//! Whether the catalog tells us every change. While it does, what is known lasts until told otherwise; from the
//! moment on in which a change may have been missed, nothing that was learned before may be used unasked.
//!
//! A *term* is a time without a gap in which every change was told. Terms are numbered; what is known carries the
//! number of the term in which it was asked for, and counts only while that term goes on. A *watcher* is one
//! connection that changes come by (one for each server of a cluster): a term begins when all of them are sure of
//! theirs, and ends when one of them is not. None is sure for good: a peer that is frozen says nothing, so each
//! vouches for a moment ahead, and past the earliest of these moments there is no term.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use metrics::Gauge;
use tokio::time::Instant;

/// The number of a term; [`Term::NONE`] outside of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term(u32);

impl Term {
    pub(crate) const NONE: Self = Self(0);

    #[cfg(test)]
    pub(crate) fn of(number: u32) -> Self {
        Self(number)
    }

    /// Whether what was learned in it counts in `now`: outside of all terms it is its age alone that counts.
    pub(crate) fn holds_in(self, now: Self) -> bool {
        self == Self::NONE || self == now
    }
}

/// A term that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Former {
    pub(crate) term: Term,
    /// When it was.
    pub(crate) until: Instant,
}

/// The terms of one catalog. Reading it takes no lock.
#[derive(Debug)]
pub struct Lease {
    born: Instant,
    /// The end of what is vouched for, in milliseconds since `born`; 0 between terms.
    until: AtomicU64,
    /// The present term, or the last.
    term: AtomicU32,
    /// The last term that is over, and when it was.
    former: AtomicU32,
    former_until: AtomicU64,
    watchers: Mutex<Watchers>,
    /// 1 in a term, 0 between terms.
    up: Gauge,
}

#[derive(Debug, Default)]
struct Watchers {
    next: u64,
    /// Up to when each vouches; `None`: not sure of its changes.
    all: BTreeMap<u64, Option<Instant>>,
}

impl Watchers {
    /// Up to when all vouch.
    fn until(&self) -> Option<Instant> {
        self.all.values().min().copied().flatten()
    }
}

impl Lease {
    pub(crate) fn new(up: Gauge) -> Self {
        up.set(0.0);
        Self {
            born: Instant::now(),
            until: AtomicU64::new(0),
            term: AtomicU32::new(Term::NONE.0),
            former: AtomicU32::new(Term::NONE.0),
            former_until: AtomicU64::new(0),
            watchers: Mutex::default(),
            up,
        }
    }

    /// The term that goes on at `now`. The end is read first: a term that ends and another that begins in between
    /// give the number of the later one, never the former with the later's end.
    pub(crate) fn term(&self, now: Instant) -> Term {
        if self.millis(now) < self.until.load(SeqCst) { Term(self.term.load(SeqCst)) } else { Term::NONE }
    }

    /// Between terms: the last one, and up to when it went on. So long, whatever was learned in it was known to be so.
    pub(crate) fn former(&self, now: Instant) -> Option<Former> {
        let until = self.until.load(SeqCst);
        let (term, until) = match until {
            0 => (&self.former, self.former_until.load(SeqCst)),
            // Nobody ended it; nobody vouched for it either.
            until if until <= self.millis(now) => (&self.term, until),
            _ => return None,
        };
        let term = Term(term.load(SeqCst));
        (term != Term::NONE).then(|| Former { term, until: self.born + Duration::from_millis(until) })
    }

    /// One more connection by which changes will come. Until it is sure of them there is no term.
    pub fn watcher(self: &Arc<Self>) -> Watcher {
        let mut watchers = self.lock();
        let id = watchers.next;
        watchers.next += 1;
        watchers.all.insert(id, None);
        self.settle(&watchers, true);
        Watcher { lease: self.clone(), id }
    }

    /// After a change of the watchers: a new term (`gap`) or the same, as far as all vouch.
    fn settle(&self, watchers: &Watchers, gap: bool) {
        if gap {
            // First of all: whoever reads the new number finds no end that the former had.
            let until = self.until.swap(0, SeqCst);
            if until > 0 {
                self.former.store(self.term.load(SeqCst), SeqCst);
                self.former_until.store(until.min(self.millis(Instant::now())), SeqCst);
            }
            let next = self.term.load(SeqCst).checked_add(1).unwrap_or(Term::NONE.0 + 1);
            self.term.store(next, SeqCst);
        }
        let until = watchers.until();
        self.until.store(until.map_or(0, |until| self.millis(until)), SeqCst);
        self.up.set(if until.is_some() { 1.0 } else { 0.0 });
    }

    fn lock(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rounded down, so that nothing lasts longer than vouched for.
    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }
}

/// One connection by which changes come. Dropped, it no longer counts, and a new term begins.
#[derive(Debug)]
pub struct Watcher {
    lease: Arc<Lease>,
    id: u64,
}

impl Watcher {
    /// Every change since it was last sure, or since just now, is told; so will be those up to `until`, or it will
    /// say so.
    pub fn vouch(&self, until: Instant) {
        let mut watchers = self.lease.lock();
        let before = watchers.all.insert(self.id, Some(until)).flatten();
        let (gap, until) = (before.is_none(), watchers.until());
        if gap {
            self.lease.settle(&watchers, true);
        } else if let Some(until) = until {
            self.lease.until.store(self.lease.millis(until), SeqCst);
        }
    }

    /// Changes may have been missed, or will be.
    pub fn lost(&self) {
        let mut watchers = self.lease.lock();
        if watchers.all.insert(self.id, None).flatten().is_some() {
            self.lease.settle(&watchers, true);
        }
    }

    /// Everything changed.
    pub fn all_changed(&self) {
        let watchers = self.lease.lock();
        self.lease.settle(&watchers, true);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut watchers = self.lease.lock();
        watchers.all.remove(&self.id);
        self.lease.settle(&watchers, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease() -> Arc<Lease> {
        Arc::new(Lease::new(Gauge::noop()))
    }

    #[test]
    fn a_term_begins_when_all_vouch_and_ends_with_the_first_that_does_not() {
        let (lease, now) = (lease(), Instant::now());
        assert_eq!(lease.term(now), Term::NONE);
        let (one, other) = (lease.watcher(), lease.watcher());
        one.vouch(now + SECOND);
        assert_eq!(lease.term(now), Term::NONE);
        other.vouch(now + 2 * SECOND);
        let first = lease.term(now);
        assert_ne!(first, Term::NONE);
        assert_eq!(lease.term(now + SECOND), Term::NONE, "beyond what one of them vouches for");
        one.vouch(now + 2 * SECOND);
        assert_eq!(lease.term(now + SECOND), first, "the same term goes on");
        other.lost();
        assert_eq!(lease.term(now), Term::NONE);
        other.vouch(now + SECOND);
        assert!(![Term::NONE, first].contains(&lease.term(now)), "after a gap it is another term");
    }

    #[test]
    fn whoever_comes_or_goes_makes_another_term() {
        let (lease, now) = (lease(), Instant::now());
        let one = lease.watcher();
        one.vouch(now + SECOND);
        let first = lease.term(now);
        let other = lease.watcher();
        assert_eq!(lease.term(now), Term::NONE);
        drop(other);
        let second = lease.term(now);
        assert!(![Term::NONE, first].contains(&second));
        one.all_changed();
        assert!(![Term::NONE, first, second].contains(&lease.term(now)));
        drop(one);
        assert_eq!(lease.term(now), Term::NONE, "nobody watches");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_term_is_told_with_its_end() {
        let (lease, born) = (lease(), Instant::now());
        assert!(lease.former(born).is_none(), "there was none");
        let watcher = lease.watcher();
        watcher.vouch(born + 2 * SECOND);
        let term = lease.term(born);
        assert!(lease.former(born).is_none(), "it goes on");
        let lapsed = lease.former(born + 3 * SECOND).expect("nobody vouches for it any more");
        assert_eq!((lapsed.term, lapsed.until), (term, born + 2 * SECOND));
        tokio::time::advance(SECOND).await;
        watcher.lost();
        let ended = lease.former(born + 3 * SECOND).expect("it is over");
        assert_eq!((ended.term, ended.until), (term, born + SECOND));
        watcher.vouch(born + 9 * SECOND);
        assert!(lease.former(born + SECOND).is_none());
    }

    #[test]
    fn what_was_learned_outside_of_terms_ages_only() {
        let (one, other) = (Term::of(1), Term::of(2));
        assert!(Term::NONE.holds_in(Term::NONE) && Term::NONE.holds_in(one) && one.holds_in(one));
        assert!(!one.holds_in(other) && !one.holds_in(Term::NONE));
    }
}
