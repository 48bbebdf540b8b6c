//! A place that was told, and how long it may be used.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{At, Policy};
use crate::{
    sandbox::lease::Term,
    types::{Generation, Placement, Route},
};

/// How long something that was learned may be used. `longest` is what the policy allows now: a time that was
/// shortened since counts at once, one that was lengthened only for what is learned from then on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub(crate) learned: Instant,
    ttl: Duration,
    /// In which it was asked for; it counts no longer than this goes on.
    pub(crate) term: Term,
}

impl Fresh {
    pub(crate) fn new(now: Instant, ttl: Duration, term: Term) -> Self {
        Self { learned: now, ttl, term }
    }

    /// Whether it may be used unasked, by whoever comes.
    pub(crate) fn lasts(self, at: At, longest: Duration) -> bool {
        self.term.holds_in(at.term) && self.age(at.now) < self.ttl.min(longest)
    }

    /// Whether the last quarter of its time is still to come.
    pub(crate) fn is_young(self, at: At, longest: Duration) -> bool {
        self.term.holds_in(at.term) && self.age(at.now) < self.ttl.min(longest) / 4 * 3
    }

    /// Whether it is in the last quarter of its time: worth asking while it still serves, so that a busy
    /// sandbox's requests never wait for a lookup.
    pub(crate) fn wanes(self, at: At, longest: Duration) -> bool {
        self.lasts(at, longest) && !self.is_young(at, longest)
    }

    /// Whether it is good enough for somebody who asks since `since`.
    pub(crate) fn serves(self, since: Instant, at: At, longest: Duration) -> bool {
        self.lasts(at, longest) || self.learned >= since
    }

    fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.learned)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) route: Arc<Route>,
    /// `None`: something changed, ask before use.
    pub(crate) fresh: Option<Fresh>,
    /// When the control plane last said so.
    pub(crate) confirmed: Instant,
    /// The last lookup failed: the place is used while the next one is under way.
    pub(crate) failing: bool,
    /// When it was last doubted by a report and confirmed.
    pub(crate) doubted: Option<Instant>,
}

impl Known {
    /// What a lookup said. The same life at the same place stays the same generation.
    pub(crate) fn confirmed(
        mut placement: Placement,
        known: Option<Self>,
        doubt: bool,
        serial: u64,
        fresh: Fresh,
    ) -> Self {
        let before = known.filter(|known| same_life(&known.route.placement, &placement));
        let doubted = match &before {
            Some(_) if doubt => Some(fresh.learned),
            Some(known) => known.doubted,
            None => None,
        };
        let (generation, woken) = match &before {
            Some(Self { route, .. }) => {
                placement.access = placement.access.or_else(|| route.placement.access.clone());
                placement.execution = placement.execution.or_else(|| route.placement.execution.clone());
                (route.generation, route.woken)
            }
            None => (Generation(serial), None),
        };
        let route = Arc::new(Route { placement, generation, woken });
        Self { route, fresh: Some(fresh), confirmed: fresh.learned, failing: false, doubted }
    }

    /// Whether it may be used unasked, by whoever comes.
    pub(crate) fn lasts(&self, at: At, policy: &Policy) -> bool {
        self.fresh.is_some_and(|fresh| fresh.lasts(at, policy.ttl_in(fresh.term)))
    }

    /// Whether it is good enough for somebody who asks since `since`.
    pub(crate) fn serves(&self, since: Instant, at: At, policy: &Policy) -> bool {
        self.fresh.is_some_and(|fresh| fresh.serves(since, at, policy.ttl_in(fresh.term)))
    }

    /// Whether it is worth asking while it still serves.
    pub(crate) fn wanes(&self, at: At, policy: &Policy) -> bool {
        self.fresh.is_some_and(|fresh| fresh.wanes(at, policy.ttl_in(fresh.term)))
    }

    /// When it was last known to be so: told, or learned in a term that went on.
    pub(crate) fn held(&self, at: At) -> Instant {
        let held = self.fresh.and_then(|fresh| at.held(fresh.term));
        held.map_or(self.confirmed, |held| held.max(self.confirmed))
    }

    /// Whether it serves while the catalog, which failed last time, is asked again.
    pub(crate) fn outlives_outage(&self, at: At, policy: &Policy) -> bool {
        self.failing && self.outlives_slowness(at, policy)
    }

    /// Whether it serves while the catalog takes its time. Against a pushed change nothing does.
    pub(crate) fn outlives_slowness(&self, at: At, policy: &Policy) -> bool {
        self.fresh.is_some() && at.now < self.held(at) + policy.stale_if_error
    }
}

/// A control plane that does not name the run leaves only the place to compare.
fn same_life(one: &Placement, other: &Placement) -> bool {
    let same_run = match (&one.execution, &other.execution) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    one.node == other.node && same_run
}
