//! A lookup under way, and what serves meanwhile.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{At, Doubt, FlightId, Known, Launch, Policy, Step};
use crate::{
    sandbox::{
        bell::{Bell, Exit, Ticket},
        lease::Term,
    },
    types::Route,
};

/// A catalog that takes longer is slow: what is known serves meanwhile, as when it is down.
pub(crate) const SLOW: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Locating {
    pub(crate) flight: FlightId,
    /// In which it was asked.
    pub(crate) term: Term,
    /// When it was first asked.
    pub(crate) since: Instant,
    pub(crate) bell: Bell,
    /// The place that was known before; outlives a catalog outage.
    pub(crate) known: Option<Known>,
    /// What somebody found empty. A place in doubt serves nobody until the answer is here.
    pub(crate) doubt: Option<Doubt>,
    /// The place was found empty after the flight began: its answer may be as old, and is void.
    pub(crate) overtaken: bool,
    /// Something changed since the flight began: its answer is void.
    pub(crate) changed: bool,
    /// Void answers so far.
    pub(crate) voided: u8,
}

impl Locating {
    pub(crate) fn take_off(known: Option<Known>, doubt: Option<Doubt>, step: Step) -> (Self, Launch) {
        let flight = FlightId(step.serial);
        let since = step.now;
        let locating = Self {
            flight,
            term: step.term,
            since,
            bell: Bell::new(Exit::default()),
            known,
            doubt,
            overtaken: false,
            changed: false,
            voided: 0,
        };
        (locating, Launch::Locate { flight })
    }

    /// A place in the queue; to be asked again when what is known may serve for want of an answer.
    pub(crate) fn ticket(&self, now: Instant) -> Ticket {
        let slow = self.known.is_some().then_some(self.since + SLOW).filter(|slow| *slow > now);
        self.bell.ticket().recheck(slow)
    }

    /// The known place, where it may still be used: the lookup came ahead of its end, or the catalog fails or
    /// is slow, and it serves from memory meanwhile.
    pub(crate) fn serving(&self, at: At, policy: &Policy) -> Option<&Arc<Route>> {
        let now = at.now;
        let known = self.known.as_ref().filter(|_| self.doubt != Some(Doubt::Place))?;
        let slow = now >= self.since + SLOW && known.outlives_slowness(at, policy);
        let serves = slow || known.lasts(at, policy) || known.outlives_outage(at, policy);
        serves.then_some(&known.route)
    }
}
