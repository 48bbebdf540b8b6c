//! A sandbox that sleeps, and the wakes under way for it: one for each set of credentials.

use std::time::Duration;

use tokio::time::Instant;

use super::{Act, Answer, FlightId, Fresh, Launch, Refusal, Step, Want};
use crate::{
    sandbox::{
        bell::{Bell, Ending, Exit},
        lease::Term,
        ports::Sleep,
    },
    types::CredentialDigest,
};

/// Wakes of one sandbox under way for different credentials.
pub(crate) const MAX_FLIGHTS: usize = 8;
/// A flight older than this no longer keeps other credentials waiting: eight wrong tokens and a
/// control plane that hangs on them must not lock the owner out.
pub(crate) const OVERDUE: Duration = Duration::from_secs(5);
/// Overdue flights and all; beyond it even the owner waits.
const MAX_FLIGHTS_EVER: usize = 64;
#[derive(Debug)]
pub(crate) struct Asleep {
    /// `None`: the catalog had nothing, the resumer decides.
    pub(crate) sleep: Option<Sleep>,
    pub(crate) fresh: Fresh,
}

#[derive(Debug)]
pub(crate) struct Resuming {
    pub(crate) asleep: Asleep,
    pub(crate) flights: Vec<WakeFlight>,
    /// Rings when any flight lands: for those who found no flight free, or may not start one.
    pub(crate) any: Bell,
    pub(crate) changed: bool,
}

#[derive(Debug)]
pub(crate) struct WakeFlight {
    pub(crate) flight: FlightId,
    pub(crate) digest: CredentialDigest,
    pub(crate) bell: Bell,
    pub(crate) since: Instant,
    /// In which it was asked.
    pub(crate) term: Term,
}

impl Asleep {
    /// Whether this request may wake it, as far as the catalog tells.
    pub(crate) fn admits(&self, want: Want<'_>) -> Result<(), Refusal> {
        if let Some(sleep) = &self.sleep {
            if let Some(reason) = sleep.barred {
                return Err(Refusal::Gone(reason));
            }
            if let Some(access) = &sleep.access {
                access.check_wake(want.credentials).map_err(Refusal::Denied)?;
            }
        }
        if want.may_wake { Ok(()) } else { Err(Refusal::Restless) }
    }
}

impl Resuming {
    /// Nothing is in flight yet.
    pub(crate) fn new(asleep: Asleep) -> Self {
        Self { asleep, flights: Vec::with_capacity(1), any: Bell::new(Exit::default()), changed: false }
    }

    /// The one for whoever waits for the next flight, and the one before, which is to be rung.
    pub(crate) fn next_any(&mut self) -> Bell {
        let next = self.any.another();
        std::mem::replace(&mut self.any, next)
    }

    pub(crate) fn wanted(&mut self, want: Want<'_>, room: bool, step: Step) -> Act {
        if let Err(refusal) = self.asleep.admits(want) {
            return Act::refuse(refusal);
        }
        if !room {
            return Act::refuse(Refusal::TooManyHeld);
        }
        if let Some(flight) = self.flights.iter().find(|flight| flight.digest == want.digest()) {
            return Act::answer(Answer::Park(flight.bell.ticket().for_own_wake()));
        }
        let mut young = self.flights.iter().map(|flight| flight.since + OVERDUE).filter(|overdue| *overdue > step.now);
        let free = self.flights.len() < MAX_FLIGHTS_EVER && young.clone().count() < MAX_FLIGHTS;
        // Whoever may not start one gains from one that is under way.
        if free && want.leave.ask().is_ok() {
            return self.take_off(want, step);
        }
        let recheck = young.by_ref().min();
        Act::answer(Answer::Park(self.any.ticket().for_wake().recheck(recheck)))
    }

    pub(crate) fn take_off(&mut self, want: Want<'_>, step: Step) -> Act {
        let flight = FlightId(step.serial);
        let bell = self.any.another();
        let ticket = bell.ticket().for_own_wake();
        let launch = Launch::Resume { flight, sleep: self.asleep.sleep.clone(), bell: bell.clone() };
        self.flights.push(WakeFlight { flight, digest: want.digest(), bell, since: step.now, term: step.term });
        Act { answer: Answer::Park(ticket), launch: Some(launch) }
    }

    pub(crate) fn ring_all(&self, ending: Ending) {
        self.flights.iter().for_each(|flight| flight.bell.ring(ending));
        self.any.ring(ending);
    }
}
