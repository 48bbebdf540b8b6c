//! Lines that a crowd would write: one a second of each kind.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(1);

/// When a line of each kind was last written, and how many were not since.
#[derive(Default)]
pub(crate) struct Quiet(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl Quiet {
    /// Whether to write one now; and then how many were left out before it.
    pub(crate) fn may_say(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((last, left_out)) = kinds.get_mut(kind) else {
            kinds.insert(kind, (now, 0));
            return Some(0);
        };
        if now < *last + PAUSE {
            *left_out += 1;
            return None;
        }
        *last = now;
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_once_a_second_and_how_often_it_was_not() {
        let (quiet, now) = (Quiet::default(), Instant::now());
        assert_eq!(quiet.may_say("a", now), Some(0));
        assert_eq!(quiet.may_say("b", now), Some(0));
        assert_eq!([quiet.may_say("a", now), quiet.may_say("a", now + PAUSE / 2)], [None; 2]);
        assert_eq!(quiet.may_say("a", now + PAUSE), Some(2));
        assert_eq!(quiet.may_say("b", now + 9 * PAUSE), Some(0));
    }
}
