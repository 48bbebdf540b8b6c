//! An operator's emergency switch: off for a time, and on again by itself.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metrics::Gauge;
use tokio::{sync::Notify, time::Instant};

pub(crate) struct Switch {
    /// Until when it is off.
    until: Mutex<Option<Instant>>,
    /// 1 while it is off; set under the lock, so that it says what is so.
    gauge: Gauge,
    turned: Notify,
}

impl Switch {
    pub(crate) fn new(gauge: Gauge) -> Self {
        Self { until: Mutex::default(), gauge, turned: Notify::new() }
    }

    pub(crate) fn turn_off(&self, until: Instant) {
        let mut off = self.until();
        *off = Some(until);
        self.gauge.set(1.0);
        drop(off);
        self.turned.notify_waiters();
    }

    /// Returns when it is off.
    pub(crate) async fn turned_off(&self) {
        loop {
            let turned = self.turned.notified();
            if self.off_for(Instant::now()).is_some() {
                return;
            }
            turned.await;
        }
    }

    /// Whether it was off.
    pub(crate) fn turn_on(&self) -> bool {
        self.end_if(|_| true)
    }

    /// The time that ends then is over; whether it was turned neither on nor off anew in between.
    pub(crate) fn end(&self, until: Instant) -> bool {
        self.end_if(|off| off == until)
    }

    fn end_if(&self, ends: impl FnOnce(Instant) -> bool) -> bool {
        let mut off = self.until();
        let ended = off.take_if(|off| ends(*off)).is_some();
        if ended {
            self.gauge.set(0.0);
        }
        ended
    }

    /// `None`: it is on.
    pub(crate) fn off_for(&self, now: Instant) -> Option<Duration> {
        let left = self.until().as_ref()?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_word_ends() {
        let (switch, now, second) = (Switch::new(Gauge::noop()), Instant::now(), Duration::from_secs(1));
        assert!(switch.off_for(now).is_none() && !switch.turn_on());
        switch.turn_off(now + second);
        switch.turn_off(now + 3 * second);
        assert_eq!(switch.off_for(now + second), Some(2 * second));
        assert!(!switch.end(now + second));
        assert!(switch.off_for(now + 3 * second).is_none());
        assert!(switch.end(now + 3 * second) && !switch.turn_on());
    }
}
