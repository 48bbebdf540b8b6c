//! An operator's emergency switch: off for a time, and on again by itself.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Until when it is off.
#[derive(Default)]
pub(crate) struct Switch(Mutex<Option<Instant>>);

impl Switch {
    pub(crate) fn turn_off(&self, until: Instant) {
        *self.until() = Some(until);
    }

    /// Whether it was off.
    pub(crate) fn turn_on(&self) -> bool {
        self.until().take().is_some()
    }

    /// The time that ends then is over; whether it was turned neither on nor off anew in between.
    pub(crate) fn end(&self, until: Instant) -> bool {
        self.until().take_if(|off| *off == until).is_some()
    }

    /// `None`: it is on.
    pub(crate) fn off_for(&self, now: Instant) -> Option<Duration> {
        let left = self.until().as_ref()?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_word_ends() {
        let (switch, now, second) = (Switch::default(), Instant::now(), Duration::from_secs(1));
        assert!(switch.off_for(now).is_none() && !switch.turn_on());
        switch.turn_off(now + second);
        switch.turn_off(now + 3 * second);
        assert_eq!(switch.off_for(now + second), Some(2 * second));
        assert!(!switch.end(now + second));
        assert!(switch.off_for(now + 3 * second).is_none());
        assert!(switch.end(now + 3 * second) && !switch.turn_on());
    }
}
