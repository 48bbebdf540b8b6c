//! What happened and why, each in one byte, and the public words for them.

use crate::{
    sandbox::{
        entry::{Finding, Refusal},
        ports::{Located, WakeError},
    },
    types::{Placement, Reason},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    LookupStarted,
    LookupEnded,
    /// A lookup, begun for a request and ended, that found what was known.
    Refreshed,
    WakeStarted,
    WakeEnded,
    /// A request did not find it where it was said to be.
    NotThere,
    /// What was known is void.
    Forgotten,
    /// A request was told no.
    Refused,
}

impl What {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::LookupStarted => "lookup_started",
            Self::LookupEnded => "lookup_ended",
            Self::Refreshed => "refreshed",
            Self::WakeStarted => "wake_started",
            Self::WakeEnded => "wake_ended",
            Self::NotThere => "not_there",
            Self::Forgotten => "forgotten",
            Self::Refused => "refused",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    // Why a lookup started.
    /// A request waits for the answer.
    Wanted,
    /// What is known serves meanwhile.
    Ahead,
    // How it ended.
    Running,
    Asleep,
    Absent,
    Failed,
    /// The answer was void, because of a change or a report since it was asked for: it is asked again.
    Overtaken,
    // For whom a wake started.
    Envd,
    UserPort,
    // How it ended.
    Ok,
    Transitioning,
    // Either.
    Lost,
    /// A wake for which nobody was asked: nobody waited any more, or nothing may be woken.
    NotAsked,
    // Why a request is refused.
    TooManyHeld,
    Suspended,
    TooManyWakes,
    Restless,
    // A wake or a request.
    Denied,
    Exhausted,
    Unavailable,
    // How a place was found empty.
    NoNode,
    Unreachable,
    Disowned,
    PortClosed,
    // Who made it void.
    Operator,
    Catalog,
    /// Any of lookup, wake and refusal.
    Gone(Reason),
}

impl Cause {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Ahead => "ahead",
            Self::Running => "running",
            Self::Asleep => "asleep",
            Self::Absent => "absent",
            Self::Failed => "failed",
            Self::Overtaken => "overtaken",
            Self::Envd => "envd",
            Self::UserPort => "user_port",
            Self::Ok => "ok",
            Self::Transitioning => "transitioning",
            Self::Lost => "lost",
            Self::NotAsked => "not_asked",
            Self::Suspended => "wakes_suspended",
            Self::TooManyWakes => "too_many_wakes",
            Self::TooManyHeld => "too_many_held",
            Self::Restless => "restless",
            Self::Denied => "denied",
            Self::Exhausted => "exhausted",
            Self::Unavailable => "unavailable",
            Self::NoNode => "no_node",
            Self::Unreachable => "unreachable",
            Self::Disowned => "disowned",
            Self::PortClosed => "port_closed",
            Self::Operator => "operator",
            Self::Catalog => "catalog",
            Self::Gone(reason) => reason.as_str(),
        }
    }

    pub(super) fn of_lookup(outcome: &Result<Located, ()>) -> Self {
        match outcome {
            Ok(Located::Running(_)) => Self::Running,
            Ok(Located::Asleep(_)) => Self::Asleep,
            Ok(Located::Absent) => Self::Absent,
            Ok(Located::Gone(reason)) => Self::Gone(*reason),
            Err(()) => Self::Failed,
        }
    }

    pub(super) fn of_wake(outcome: &Result<Placement, WakeError>) -> Self {
        match outcome {
            Ok(_) => Self::Ok,
            Err(WakeError::Gone(reason)) => Self::Gone(*reason),
            Err(WakeError::Denied(_)) => Self::Denied,
            Err(WakeError::Exhausted(_)) => Self::Exhausted,
            Err(WakeError::Transitioning) => Self::Transitioning,
            Err(WakeError::Unavailable(_)) => Self::Unavailable,
        }
    }

    pub(super) fn of_finding(finding: Finding) -> Self {
        match finding {
            Finding::NoNode => Self::NoNode,
            Finding::Unreachable => Self::Unreachable,
            Finding::Disowned => Self::Disowned,
            Finding::PortClosed => Self::PortClosed,
        }
    }

    pub(super) fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Gone(reason) => Self::Gone(*reason),
            Refusal::Denied(_) => Self::Denied,
            Refusal::Exhausted(_) => Self::Exhausted,
            Refusal::Unavailable => Self::Unavailable,
            Refusal::TooManyHeld => Self::TooManyHeld,
            Refusal::Suspended(_) => Self::Suspended,
            Refusal::TooManyWakes(_) => Self::TooManyWakes,
            Refusal::Restless => Self::Restless,
        }
    }
}

/// The word for a wake's outcome in metrics, logs and the admin pages.
pub(crate) fn outcome_word(outcome: &Result<Placement, WakeError>) -> &'static str {
    Cause::of_wake(outcome).as_str()
}
