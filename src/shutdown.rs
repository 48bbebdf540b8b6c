//! Floor 1: the end, in three steps that everybody can see coming: *draining* (answers say so,
//! readiness fails, all is still served), *closing* (no new connection, idle ones close), *cut* (what
//! still runs ends now).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// After the cut, answers that say so still have this long to leave; then their connections end.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where the process stands on its way out; clones see the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    /// An atomic of its own: it is read once per answer.
    draining: Arc<AtomicBool>,
    /// Likewise: read whenever a connection is woken.
    closed: Arc<AtomicBool>,
    /// Likewise: read whenever a request that waits is woken.
    over: Arc<AtomicBool>,
    closing: CancellationToken,
    cut: CancellationToken,
    work: TaskTracker,
}

impl Shutdown {
    /// The same for one worker: to look at a token takes its lock, and workers should not share one.
    pub(crate) fn for_worker(&self) -> Self {
        Self { closing: self.closing.child_token(), cut: self.cut.child_token(), ..self.clone() }
    }

    /// Whether answers should ask their clients to go elsewhere.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Cancelled when no new connection is taken and idle ones close.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Whether that is so by now; already true for those whom the token wakes.
    pub(crate) fn is_closing(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Whether everything ends now. The connections are woken then, and with them what waits on them.
    pub(crate) fn is_cut(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Takes no new connection; idle ones close.
    pub(crate) fn close_now(&self) {
        self.closed.store(true, Relaxed);
        self.closing.cancel();
    }

    /// Ends everything that still runs.
    pub(crate) fn cut_now(&self) {
        self.over.store(true, Relaxed);
        self.cut.cancel();
    }

    /// Cancelled when everything ends.
    pub(crate) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Work that the end waits for, until dropped.
    pub(crate) fn track(&self) -> TaskTrackerToken {
        self.work.token()
    }

    /// Walks the three steps. Returns when nothing is left; whether everything ended by itself.
    pub(crate) async fn drain(&self, delay: Duration, limit: Duration) -> bool {
        self.draining.store(true, Relaxed);
        sleep(delay).await;
        self.close_now();
        self.work.close();
        let in_time = timeout(limit, self.work.wait()).await.is_ok();
        self.cut_now();
        if !in_time {
            let _ = timeout(LAST_WORDS, self.work.wait()).await;
        }
        in_time
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const DELAY: Duration = Duration::from_secs(15);
    const LIMIT: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn nothing_closes_during_the_delay_and_work_that_ends_ends_the_drain() {
        let shutdown = Shutdown::default();
        let work = shutdown.track();
        let start = Instant::now();
        let drain = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.drain(DELAY, LIMIT).await }
        });
        tokio::task::yield_now().await;
        assert!(shutdown.is_draining() && !shutdown.closing().is_cancelled());
        shutdown.closing().cancelled().await;
        assert_eq!(start.elapsed(), DELAY);
        assert!(!shutdown.cut().is_cancelled());
        drop(work);
        assert!(drain.await.expect("no panic"));
        assert_eq!(start.elapsed(), DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_end_is_cut() {
        let shutdown = Shutdown::default();
        let _work = shutdown.track();
        let start = Instant::now();
        assert!(!shutdown.drain(DELAY, LIMIT).await);
        assert_eq!(start.elapsed(), DELAY + LIMIT + LAST_WORDS);
        assert!(shutdown.cut().is_cancelled());
    }
}
