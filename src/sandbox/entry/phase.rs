//! An entry at a glance: what can be told of it in a word, and what tells whether an event changed it.

use std::str::FromStr;

use super::{Entry, Known, State};
use crate::types::Generation;

/// A state without its data. The words are public: operators read and ask for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Unknown,
    Locating,
    Running,
    /// Something changed: it is asked about before use.
    RunningStale,
    Asleep,
    Resuming,
    Refusing,
    Gone,
}

impl Phase {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Locating,
        Self::Running,
        Self::RunningStale,
        Self::Asleep,
        Self::Resuming,
        Self::Refusing,
        Self::Gone,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Locating => "locating",
            Self::Running => "running",
            Self::RunningStale => "running_stale",
            Self::Asleep => "asleep",
            Self::Resuming => "resuming",
            Self::Refusing => "refusing",
            Self::Gone => "gone",
        }
    }
}

impl FromStr for Phase {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word).ok_or(())
    }
}

/// What an event may change of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    pub(crate) phase: Phase,
    /// Of the place that is known.
    pub(crate) generation: Option<Generation>,
    /// How many are under way: one that lands takes itself off, stale news takes off none.
    pub(crate) flights: usize,
}

impl Entry {
    pub(crate) fn phase(&self) -> Phase {
        match &self.state {
            State::Unknown => Phase::Unknown,
            State::Locating(_) => Phase::Locating,
            State::Running(known) if known.fresh.is_some() => Phase::Running,
            State::Running(_) => Phase::RunningStale,
            State::Asleep(_) => Phase::Asleep,
            State::Resuming(_) => Phase::Resuming,
            State::Refusing(_) => Phase::Refusing,
            State::Gone(..) => Phase::Gone,
        }
    }

    /// The place that is known, be it good for anybody or not.
    pub(crate) fn known(&self) -> Option<&Known> {
        match &self.state {
            State::Running(known) => Some(known),
            State::Locating(locating) => locating.known.as_ref(),
            _ => None,
        }
    }

    pub(crate) fn glance(&self) -> Glance {
        let flights = match &self.state {
            State::Locating(_) => 1,
            State::Resuming(resuming) => resuming.flights.len(),
            _ => 0,
        };
        Glance { phase: self.phase(), generation: self.known().map(|known| known.route.generation), flights }
    }
}
