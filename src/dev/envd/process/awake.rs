//! Time as a sandbox lives it.

use std::time::Duration;

use tokio::time::sleep;

/// The most that a pause takes off such a time.
const STEP: Duration = Duration::from_secs(1);

/// A sandbox that sleeps does not grow older, though the clock goes on: a step is a step, however long it took.
/// Without a time it never ends.
pub(super) async fn awake_for(time: Option<Duration>) {
    let Some(mut left) = time else {
        return std::future::pending().await;
    };
    while !left.is_zero() {
        let step = left.min(STEP);
        sleep(step).await;
        left -= step;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sleep_costs_no_time() {
        let (begun, asleep) = (Instant::now(), Duration::from_hours(1));
        let mut time = std::pin::pin!(awake_for(Some(Duration::from_millis(2500))));
        assert!(timeout(Duration::from_millis(1200), &mut time).await.is_err());
        advance(asleep).await;
        time.await;
        let awake = begun.elapsed().saturating_sub(asleep);
        assert!((1500..2600).contains(&awake.as_millis()), "{awake:?}");
    }
}
