//! What can happen to a sandbox, and what there can be to do about it.

use std::{cell::OnceCell, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    sandbox::{
        bell::{Bell, Ticket},
        lease::{Former, Term},
        leave::Leave,
        ports::{Located, Sleep, WakeError},
    },
    types::{CredentialDigest, Credentials, Denial, Generation, Placement, Reason, Route},
};

/// The limits that the decisions depend on.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// How long a running sandbox's place is used unasked where nobody tells of changes.
    pub(crate) ttl: Duration,
    /// The same where every change is told.
    pub(crate) ttl_with_push: Duration,
    /// How long a known place outlives a catalog outage.
    pub(crate) stale_if_error: Duration,
    /// How long a refusal is remembered.
    pub(crate) negative_ttl: Duration,
    /// Requests that may wait for one sandbox.
    pub(crate) max_held_per_sandbox: usize,
}

impl Policy {
    /// How long a running sandbox's place is used unasked that was asked for in this term.
    pub(crate) fn ttl_in(&self, term: Term) -> Duration {
        if term == Term::NONE { self.ttl } else { self.ttl_with_push }
    }

    /// Outages are forgotten sooner than facts: the control plane may be back.
    pub(crate) fn outage_ttl(&self) -> Duration {
        self.negative_ttl.min(Duration::from_secs(1))
    }
}

/// Names a flight; never reused within a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId(pub(crate) u64);

/// When an event is applied, and a number nobody else has, for what it may give birth to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) now: Instant,
    pub(crate) serial: u64,
    pub(crate) term: Term,
    /// Between terms: the last.
    pub(crate) former: Option<Former>,
}

impl Step {
    pub(crate) fn at(self) -> At {
        At { now: self.now, term: self.term, former: self.former }
    }
}

/// A moment, and the term that it falls into; between terms, the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) now: Instant,
    pub(crate) term: Term,
    pub(crate) former: Option<Former>,
}

impl At {
    /// Up to when what was learned in this term was known to be so.
    pub(crate) fn held(self, term: Term) -> Option<Instant> {
        match self.former {
            _ if term == Term::NONE => None,
            _ if term == self.term => Some(self.now),
            Some(former) if term == former.term => Some(former.until),
            _ => None,
        }
    }
}

/// One request that wants the sandbox.
#[expect(clippy::struct_excessive_bools, reason = "facts about one request, each read in one place")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    pub(crate) credentials: &'a Credentials,
    /// Made of the credentials when it is needed: most requests find their sandbox running.
    pub(crate) digest: &'a OnceCell<CredentialDigest>,
    /// When it began to ask: nothing learned since is too old for it.
    pub(crate) since: Instant,
    /// Whether one more request may be held in this process.
    pub(crate) room: bool,
    /// It has been held so far, and keeps its place.
    pub(crate) parked: bool,
    /// Whether it may still join or cause a wake.
    pub(crate) may_wake: bool,
    /// Whether it may cause one now; asked only where it would.
    pub(crate) leave: Leave<'a>,
    /// It has found the place empty: a place that is being asked about because of that is not for it.
    pub(crate) doubts: bool,
}

impl Want<'_> {
    pub(crate) fn digest(&self) -> CredentialDigest {
        *self.digest.get_or_init(|| self.credentials.digest())
    }
}

/// What a request found where the sandbox was said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The route names no node.
    NoNode,
    /// Nobody took the connection.
    Unreachable,
    /// The node said that it does not have it.
    Disowned,
    /// The sandbox's own machine took no connection on this port.
    PortClosed,
}

impl Finding {
    /// What it casts doubt on.
    pub(crate) fn doubt(self) -> Doubt {
        match self {
            Self::PortClosed => Doubt::Port,
            Self::NoNode | Self::Unreachable | Self::Disowned => Doubt::Place,
        }
    }
}

/// What was found empty; the graver the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doubt {
    /// One port: others may well be served.
    Port,
    /// The place: no request for this sandbox will find it there.
    Place,
}

/// What happens to a sandbox.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A request wants it.
    Wanted(Want<'a>),
    /// A lookup ended; `Err`: the catalog failed.
    Located { flight: FlightId, outcome: Result<Located, ()> },
    /// A wake ended.
    Resumed { flight: FlightId, outcome: Result<Placement, WakeError>, took: Duration },
    /// A flight ended without telling how (it panicked).
    Lost { flight: FlightId },
    /// A wake ended before anybody was asked: nobody waited for it any more, or nothing may be woken now.
    NotAsked { flight: FlightId },
    /// The place of this generation does not have it, or its port.
    NotThere { generation: Generation, finding: Finding },
    /// The catalog says that something about it changed.
    Changed,
    /// An operator wants it to be asked about again.
    Forget,
}

/// Why a request does not get its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Gone(Reason),
    Denied(Denial),
    Exhausted(Arc<str>),
    Unavailable,
    TooManyHeld,
    /// Nothing is woken now, for so long.
    Suspended(Duration),
    /// Its client caused as many wakes as it may; it may cause the next in this time.
    TooManyWakes(Duration),
    /// It was woken for this request as often as it may be, and was gone again each time.
    Restless,
}

/// What the caller of `on` is to do.
#[derive(Debug)]
pub(crate) struct Act {
    pub(crate) answer: Answer,
    pub(crate) launch: Option<Launch>,
}

/// What the one who wanted the sandbox is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The event was not a want.
    None,
    Go(Arc<Route>),
    Refuse(Refusal),
    Park(Ticket),
}

/// A flight to start.
#[derive(Debug)]
pub(crate) enum Launch {
    Locate { flight: FlightId },
    Resume { flight: FlightId, sleep: Option<Sleep>, bell: Bell },
}

impl Act {
    pub(crate) const NONE: Self = Self { answer: Answer::None, launch: None };

    pub(crate) fn answer(answer: Answer) -> Self {
        Self { answer, launch: None }
    }

    pub(crate) fn refuse(refusal: Refusal) -> Self {
        Self::answer(Answer::Refuse(refusal))
    }
}
