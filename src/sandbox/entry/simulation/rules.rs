//! What must hold after every event.

use super::*;
use crate::sandbox::entry::locating::SLOW;

impl World {
    /// No route is handed out that was asked for before the last change; but where that was missed, to those who
    /// began to wait before the answer came, or while the catalog is slow, or where
    /// there is no room to wait.
    pub(super) fn check_route(&self, route: &Route, since: Instant, room: bool) {
        let epoch: u64 = route.placement.execution.as_deref().and_then(|text| text.parse().ok()).expect("an epoch");
        if let Some((generation, at)) = self.reported
            && route.generation == generation
        {
            assert!(self.outages || self.answered > at, "a place that was found empty, and not asked about since");
        }
        let slow = matches!(&self.entry.state, State::Locating(locating) if self.now >= locating.since + SLOW);
        let in_time = self.entry.known().is_some_and(|known| known.confirmed >= since);
        let missed = epoch >= self.pushed && (in_time || slow || !room);
        assert!(self.outages || missed || epoch == self.epoch, "a stale route: told in {epoch}, now {}", self.epoch);
    }

    pub(super) fn check(&self) {
        let lookups = self.flying.iter().filter(|flying| matches!(flying, Flying::Lookup { .. })).count();
        assert!(lookups <= 1, "{lookups} lookups in flight");
        let wakes = match &self.entry.state {
            State::Resuming(resuming) => &resuming.flights[..],
            _ => &[],
        };
        for (at, wake) in wakes.iter().enumerate() {
            assert!(wakes[..at].iter().all(|other| other.digest != wake.digest), "two wakes for one digest");
            let in_air = |flying: &Flying| matches!(flying, Flying::Wake { flight, .. } if *flight == wake.flight);
            assert!(self.flying.iter().any(in_air), "waiting for a wake that nobody makes");
        }
        if let State::Locating(locating) = &self.entry.state {
            let in_air =
                |flying: &Flying| matches!(flying, Flying::Lookup { flight, .. } if *flight == locating.flight);
            assert!(self.flying.iter().any(in_air), "waiting for a lookup that nobody makes");
        }
        if let Some(route) = self.entry.route(At { now: self.now, term: self.term, former: None }, &self.policy) {
            self.check_route(route, self.now, true);
            let old = |known: &Known| !known.failing && self.now >= known.confirmed + self.policy.ttl_in(self.term);
            assert!(!matches!(&self.entry.state, State::Running(known) if old(known)), "used for too long");
        }
        if let State::Resuming(resuming) = &self.entry.state {
            assert!(!resuming.flights.is_empty(), "resuming without a flight");
        }
        for waiter in self.waiters.iter().filter(|waiter| waiter.ticket.landed().is_none()) {
            let rings = match &self.entry.state {
                State::Locating(locating) => locating.bell.rings_for(&waiter.ticket),
                State::Resuming(resuming) => {
                    resuming.any.rings_for(&waiter.ticket)
                        || resuming.flights.iter().any(|flight| flight.bell.rings_for(&waiter.ticket))
                }
                _ => false,
            };
            assert!(rings, "a waiter whose bell nobody will ring");
        }
        assert_eq!(self.waiters.len(), self.entry.held(), "held other than wait");
        self.check_history();
    }

    /// It tells how the entry came to be what it is, without a gap.
    pub(super) fn check_history(&self) {
        let records = self.history.records();
        assert!(records.len() <= History::MAX, "{} records", records.len());
        for (before, after) in records.iter().zip(&records[1.min(records.len())..]) {
            assert_eq!(before.after, after.before, "a gap after {before:?}: {after:?}");
            assert!(before.last <= after.last, "told in another order: {before:?}, {after:?}");
        }
        assert!(records.iter().all(|record| record.times > 0 && record.first <= record.last));
        let now = records.last().map_or(Phase::Unknown, |last| last.after);
        assert_eq!(now, self.entry.phase(), "it does not tell how it came to this");
    }
}
