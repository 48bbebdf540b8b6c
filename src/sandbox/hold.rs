//! The time that one request may be held, and what it used of it.

use std::{cell::OnceCell, time::Duration};

use tokio::time::Instant;

use super::bell::Ending;
use crate::types::CredentialDigest;

/// Time spent otherwise (the sandbox thinks, the client uploads) does not count.
#[derive(Debug)]
pub(crate) struct Hold {
    left: Duration,
    budget: Duration,
    /// The caller's credentials, digested when first needed.
    pub(super) digest: OnceCell<CredentialDigest>,
    /// Wakes that this request saw succeed.
    wakes: u8,
    /// The control plane said "still transitioning" while this request waited.
    pub(super) transitioning: bool,
    /// Only waiting for a wake is being held now: the exchange is under way, and lookups are made beside it.
    beside: bool,
    since: Option<Instant>,
    /// When it began to wait, or last did.
    began: Option<Instant>,
    /// Whether that is for a wake.
    for_wake: bool,
    held: Duration,
}

/// A sandbox that is gone again right after its wake is woken once more for the same request.
const MAX_WAKES: u8 = 2;
/// The catalogs that there are answer within that.
const LOOKUP: Duration = Duration::from_secs(1);

impl Hold {
    /// Nothing used yet of `budget`.
    pub(crate) fn new(budget: Duration) -> Self {
        Self {
            left: budget,
            budget,
            digest: OnceCell::new(),
            wakes: 0,
            transitioning: false,
            beside: false,
            since: None,
            began: None,
            for_wake: false,
            held: Duration::ZERO,
        }
    }

    /// The same request, while its exchange is under way: a whole budget again, but no more wakes, or one
    /// that stays open would wake its sandbox for ever.
    pub(crate) fn renew(&mut self, budget: Duration) {
        (self.left, self.budget) = (budget, budget);
        self.beside = true;
    }

    /// Whether it was too little from the beginning for something that takes so long; what operators gave is enough.
    pub(super) fn is_short_of(&self, time: Duration, given: Duration) -> bool {
        !self.beside && self.budget < time.min(given)
    }

    /// When a request that is held from `now` on has waited enough.
    pub(crate) fn deadline(&self, now: Instant) -> Instant {
        now + self.left
    }

    /// The same for a lookup: whoever hardly wants to wait for a wake, or not at all, wants to know of the sandbox that
    /// runs. `given`: what operators give to all.
    pub(super) fn lookup_deadline(&self, now: Instant, given: Duration) -> Instant {
        let least = LOOKUP.min(given);
        if self.budget < least { now + least } else { self.deadline(now) }
    }

    /// How long it was held in all, up to now.
    pub(crate) fn held(&self) -> Duration {
        self.held + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// When it began to wait, or last did, and whether for a wake; otherwise for a lookup.
    pub(crate) fn last_wait(&self) -> Option<(Instant, bool)> {
        self.began.map(|began| (began, self.for_wake))
    }

    /// Whether it waits now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Whether a wake ended while it was held.
    pub(crate) fn saw_wake(&self) -> bool {
        self.wakes > 0
    }

    pub(super) fn may_wake(&self) -> bool {
        self.wakes < MAX_WAKES
    }

    /// It waits from now on.
    pub(super) fn begin(&mut self, for_wake: bool) {
        if self.since.is_none() && (for_wake || !self.beside) {
            let now = Instant::now();
            (self.since, self.began, self.for_wake) = (Some(now), Some(now), false);
        }
        self.for_wake |= for_wake;
    }

    /// What it waited for has ended so.
    pub(super) fn saw(&mut self, ending: Ending) {
        self.wakes += u8::from(ending == Ending::Woken);
        self.transitioning |= ending == Ending::Transitioning;
    }

    /// It waits no longer; also to be called when the waiting was broken off.
    pub(crate) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.spend(since.elapsed());
        }
    }

    /// Time spent as if it were held: dialling a port that is about to open.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.held += time;
        self.left = self.left.saturating_sub(time);
    }
}
