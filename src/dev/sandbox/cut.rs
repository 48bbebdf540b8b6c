//! The last step of a pause: connections go, and nobody is told of it before all are gone.

use std::time::Duration;

use tokio::{sync::watch, time::timeout};

/// So long whoever asks how a sandbox stands waits for it. Processes that do not die may hold up a cut for longer.
const LONGEST: Duration = Duration::from_secs(3);

pub(super) struct Cut(watch::Sender<bool>);

/// A cut under way. Over when dropped: also where its task panics, or ends in the middle.
pub(super) struct Cutting<'a>(&'a Cut);

impl Cut {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(super) fn begin(&self) -> Cutting<'_> {
        self.0.send_replace(true);
        Cutting(self)
    }

    /// Returns when none is under way, or has been for too long.
    pub(super) async fn over(&self) {
        let mut cutting = self.0.subscribe();
        let _ = timeout(LONGEST, cutting.wait_for(|cutting| !cutting)).await;
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::AssertUnwindSafe, pin::pin};

    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cut_is_waited_for_but_not_for_long() {
        let cut = Cut::new();
        let begin = Instant::now();
        cut.over().await;
        let cutting = cut.begin();
        let mut over = pin!(cut.over());
        assert_eq!(over.as_mut().now_or_never(), None);
        drop(cutting);
        over.await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let _cutting = cut.begin();
        timeout(2 * LONGEST, cut.over()).await.expect("a bound");
        assert!(begin.elapsed() >= LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_a_cut() {
        let cut = Cut::new();
        let ends = AssertUnwindSafe(async {
            let _cutting = cut.begin();
            panic!("in the middle");
        });
        ends.catch_unwind().await.expect_err("a panic");
        assert_eq!(cut.over().now_or_never(), Some(()));
    }
}
