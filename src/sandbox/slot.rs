//! What the table keeps of one sandbox: its entry, and beside it what operators and the sweep want to know.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    entry::{Act, At, Entry, Event, Launch, Policy, Step},
    history::History,
};

/// Times are the table's milliseconds.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) entry: Entry,
    pub(crate) history: History,
    /// When a request last wanted it.
    wanted: AtomicU64,
    /// Requests since it is known, each once, however often it asked; those that were the first on several workers in
    /// the same instant count as one.
    requests: AtomicU64,
    /// Wakes started since it is known.
    wakes: u32,
}

impl Slot {
    /// For its first request.
    pub(crate) fn new() -> Self {
        Self {
            entry: Entry::default(),
            history: History::default(),
            wanted: AtomicU64::new(0),
            requests: AtomicU64::new(1),
            wakes: 0,
        }
    }

    /// One more request came for it. Only counts: a read lock is enough.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// A request wants it. A read lock is enough.
    pub(crate) fn touch(&self, at: u64) {
        self.wanted.store(at, Relaxed);
    }

    pub(crate) fn apply(&mut self, event: Event<'_>, step: Step, policy: &Policy, at: u64) -> Act {
        let act = self.history.apply(&mut self.entry, event, step, policy, at);
        self.wakes += u32::from(matches!(act.launch, Some(Launch::Resume { .. })));
        act
    }

    /// Whether it holds nothing that could still be used, be it only to tell an operator what became of a sandbox.
    pub(crate) fn useless(&self, at: At, policy: &Policy) -> bool {
        self.entry.useless(at, policy) && !self.history.tells_of_a_sandbox()
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn wakes(&self) -> u32 {
        self.wakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There may be a million of them: what one costs is not to grow unseen.
    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 248);
    }
}
