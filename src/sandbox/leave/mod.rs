//! Whether a request may cause a wake, apart from what its sandbox's owner allows: the operator's rules, the
//! emergency switch, and how many wakes one client may cause.

use std::fmt;

use tokio::time::Instant;

use self::allowance::Allowance;
pub(crate) use self::switch::Switch;
use super::entry::Refusal;
use crate::types::{ClientNet, Reason};

mod allowance;
mod switch;

/// Asked at the moment in which a wake would start, under the entry's lock: it takes no time and never waits.
#[derive(Clone, Copy)]
pub(crate) struct Leave<'a>(pub(crate) &'a dyn Fn() -> Result<(), Refusal>);

impl Leave<'_> {
    #[cfg(test)]
    pub(crate) const GIVEN: Leave<'static> = Leave(&|| Ok(()));

    pub(crate) fn ask(self) -> Result<(), Refusal> {
        self.0()
    }
}

impl fmt::Debug for Leave<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

/// What gives leave.
#[derive(Default)]
pub(crate) struct Warden {
    switch: Switch,
    allowance: Allowance,
}

impl Warden {
    /// `wakes`: whether such a request wakes at all. Leave that is given counts as a wake.
    pub(crate) fn leave(&self, client: ClientNet, wakes: bool, now: Instant) -> Result<(), Refusal> {
        if !wakes {
            return Err(Refusal::Gone(Reason::NotWoken));
        }
        if let Some(left) = self.switch.off_for(now) {
            return Err(Refusal::Suspended(left));
        }
        self.allowance.take(client, now).map_err(Refusal::TooManyWakes)
    }

    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// From now on so many wakes a minute are one client's; 0: as many as it likes.
    pub(crate) fn set_max_per_minute(&self, max: usize) {
        self.allowance.set_max(max);
    }
}
