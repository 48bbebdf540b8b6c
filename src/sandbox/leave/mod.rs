//! Whether a request may cause a wake, apart from what its sandbox's owner allows: the operator's rules, the
//! emergency switch, and how many wakes one client may cause.

use std::fmt;

use metrics::Gauge;
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
pub(crate) struct Warden {
    switch: Switch,
    allowance: Allowance,
}

impl Warden {
    /// `suspended`: 1 while the switch is off.
    pub(crate) fn new(max_per_minute: usize, suspended: Gauge) -> Self {
        let allowance = Allowance::default();
        allowance.set_max(max_per_minute);
        Self { switch: Switch::new(suspended), allowance }
    }

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

    /// A wake that was given leave did not come to be.
    pub(crate) fn give_back(&self, client: ClientNet) {
        self.allowance.give_back(client);
    }

    /// Forgets clients that caused none in the last minute. Every few seconds.
    pub(crate) fn sweep(&self, now: Instant) {
        self.allowance.sweep(now);
    }

    pub(crate) fn switch(&self) -> &Switch {
        &self.switch
    }

    /// From now on so many wakes a minute are one client's; 0: as many as it likes.
    pub(crate) fn set_max_per_minute(&self, max: usize) {
        self.allowance.set_max(max);
    }
}
