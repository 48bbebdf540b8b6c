//! How long a wake usually takes, for those who are told to come back.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A moving average over recent wakes that succeeded, each weighing a quarter.
pub(crate) struct Usual(AtomicU64);

/// Before the first wake; the resumes that E2B publishes take about a second.
const AT_FIRST: Duration = Duration::from_secs(1);

impl Usual {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(micros(AT_FIRST)))
    }

    pub(crate) fn took(&self, wake: Duration) {
        let wake = micros(wake);
        let _ = self.0.fetch_update(Relaxed, Relaxed, |usual| Some(usual - usual / 4 + wake / 4));
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }
}

fn micros(time: Duration) -> u64 {
    // Two of them can be added, whatever a clock does.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_wakes_take() {
        let usual = Usual::new();
        (0..20).for_each(|_| usual.took(Duration::from_secs(8)));
        assert!((7..=8).contains(&usual.get().as_secs()), "{:?}", usual.get());
        (0..20).for_each(|_| usual.took(Duration::from_millis(100)));
        assert!(usual.get() < Duration::from_millis(150), "{:?}", usual.get());
        usual.took(Duration::MAX);
        assert!(usual.get() > Duration::from_hours(1));
    }
}
