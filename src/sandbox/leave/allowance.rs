//! How many wakes a client may cause in any minute.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::types::ClientNet;

const MINUTE: Duration = Duration::from_mins(1);

/// Wakes of the last minute by client: as many as there were, which is what they are bounded by.
#[derive(Default)]
pub(crate) struct Allowance {
    /// 0: no bound, and nothing is counted.
    max: AtomicUsize,
    by_client: Mutex<HashMap<ClientNet, VecDeque<Instant>>>,
}

impl Allowance {
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
    }

    /// One more wake; the error is how long it is until there may be one.
    pub(crate) fn take(&self, client: ClientNet, now: Instant) -> Result<(), Duration> {
        let max = self.max.load(Relaxed);
        if max == 0 {
            return Ok(());
        }
        let mut by_client = self.by_client();
        let wakes = by_client.entry(client).or_default();
        let is_over = |wake: &Instant| *wake + MINUTE <= now;
        while wakes.front().is_some_and(is_over) {
            wakes.pop_front();
        }
        // The bound may have been higher: the one that has to be over is not always the oldest.
        if let Some(at) = wakes.len().checked_sub(max) {
            return Err(wakes[at] + MINUTE - now);
        }
        wakes.push_back(now);
        Ok(())
    }

    /// The last one did not come to be.
    pub(crate) fn give_back(&self, client: ClientNet) {
        if let Some(wakes) = self.by_client().get_mut(&client) {
            wakes.pop_back();
        }
    }

    pub(crate) fn sweep(&self, now: Instant) {
        self.by_client().retain(|_, wakes| wakes.back().is_some_and(|last| *last + MINUTE > now));
    }

    fn by_client(&self) -> MutexGuard<'_, HashMap<ClientNet, VecDeque<Instant>>> {
        self.by_client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn client(number: u8) -> ClientNet {
        IpAddr::from([10, 0, 0, number]).into()
    }

    #[test]
    fn no_minute_has_more_than_the_bound_and_each_client_has_its_own() {
        let allowance = Allowance::default();
        let start = Instant::now();
        (0..10).for_each(|_| assert_eq!(allowance.take(client(1), start), Ok(())));
        allowance.set_max(2);
        assert_eq!(allowance.take(client(1), start), Ok(()));
        assert_eq!(allowance.take(client(1), start + 20 * SECOND), Ok(()));
        assert_eq!(allowance.take(client(1), start + 30 * SECOND), Err(30 * SECOND));
        assert_eq!(allowance.take(client(2), start + 30 * SECOND), Ok(()));
        assert_eq!(allowance.take(client(1), start + 60 * SECOND), Ok(()));
        assert_eq!(allowance.take(client(1), start + 61 * SECOND), Err(19 * SECOND));
        allowance.set_max(1);
        assert_eq!(allowance.take(client(1), start + 61 * SECOND), Err(59 * SECOND));
    }

    #[test]
    fn clients_that_woke_nothing_lately_are_forgotten() {
        let allowance = Allowance::default();
        allowance.set_max(5);
        let start = Instant::now();
        (0..200).for_each(|number| assert_eq!(allowance.take(client(number), start), Ok(())));
        assert_eq!(allowance.take(client(201), start + 2 * MINUTE), Ok(()));
        allowance.sweep(start + 2 * MINUTE);
        assert_eq!(allowance.by_client().len(), 1);
        allowance.give_back(client(201));
        allowance.sweep(start + 2 * MINUTE);
        assert_eq!(allowance.by_client().len(), 0);
    }
}
