//! What is logged: as configured, or otherwise for a while.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::Serialize;
use tokio::{task::AbortHandle, time::sleep};
use tracing_subscriber::filter::ParseError;

use super::log;

/// The log's filter; the whole process has one.
pub(crate) struct Verbosity(Mutex<State>);

struct State {
    configured: String,
    temporary: Option<Temporary>,
    /// How often a filter was set for a while: names the last of them.
    serial: u64,
}

struct Temporary {
    filter: String,
    until: SystemTime,
    end: AbortHandle,
}

/// What operators see of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    current: String,
    configured: String,
    /// RFC 3339; `None`: the current filter is the configured one.
    until: Option<String>,
}

impl Verbosity {
    /// `configured` is what is logged already.
    pub(crate) fn new(configured: String) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { configured, temporary: None, serial: 0 })))
    }

    /// There is another configuration. A filter that was set for a while stays for that while.
    pub(crate) fn configure(&self, filter: &str) -> Result<(), ParseError> {
        let mut state = self.state();
        if state.temporary.is_none() {
            log::set_filter(filter)?;
        }
        filter.clone_into(&mut state.configured);
        Ok(())
    }

    /// This filter for so long, in place of any that was set before. To be called in a runtime.
    pub(crate) fn set(self: &Arc<Self>, filter: &str, time: Duration) -> Result<View, ParseError> {
        let mut state = self.state();
        // Said before it may be silenced.
        tracing::info!(filter, seconds = time.as_secs(), "another log filter for a while");
        log::set_filter(filter)?;
        state.stop();
        state.serial += 1;
        let (this, serial) = (self.clone(), state.serial);
        let end = tokio::spawn(async move {
            sleep(time).await;
            let mut state = this.state();
            // Another one may have come while this one was about to end.
            if state.serial == serial {
                state.restore();
            }
        });
        let (filter, until) = (filter.to_owned(), SystemTime::now() + time);
        state.temporary = Some(Temporary { filter, until, end: end.abort_handle() });
        Ok(state.view())
    }

    /// The configured filter at once.
    pub(crate) fn restore(&self) -> View {
        let mut state = self.state();
        state.stop();
        state.restore();
        state.view()
    }

    pub(crate) fn view(&self) -> View {
        self.state().view()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left it whole: every change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn stop(&self) {
        if let Some(temporary) = &self.temporary {
            temporary.end.abort();
        }
    }

    fn restore(&mut self) {
        if self.temporary.take().is_some() {
            if let Err(error) = log::set_filter(&self.configured) {
                tracing::error!(%error, "the configured log filter cannot be restored");
            }
            tracing::info!(filter = self.configured, "the configured log filter again");
        }
    }

    fn view(&self) -> View {
        let current = self.temporary.as_ref().map_or(&self.configured, |temporary| &temporary.filter);
        let until = self.temporary.as_ref().map(|temporary| humantime::format_rfc3339_seconds(temporary.until));
        View {
            current: current.clone(),
            configured: self.configured.clone(),
            until: until.map(|until| until.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn is(verbosity: &Verbosity, current: &str, configured: &str) {
        let view = verbosity.view();
        assert_eq!((view.current.as_str(), view.configured.as_str()), (current, configured));
        assert_eq!(view.until.is_some(), current != configured);
    }

    #[tokio::test(start_paused = true)]
    async fn a_filter_for_a_while_ends_by_itself_or_by_another() {
        let verbosity = Verbosity::new("info".into());
        verbosity.set("debug", 10 * MINUTE).expect("a filter");
        sleep(9 * MINUTE).await;
        is(&verbosity, "debug", "info");
        // The second takes the place of the first, its end included.
        verbosity.set("trace", 10 * MINUTE).expect("a filter");
        sleep(9 * MINUTE).await;
        is(&verbosity, "trace", "info");
        // A reload does not end it, but decides what comes after it.
        verbosity.configure("warn").expect("a filter");
        is(&verbosity, "trace", "warn");
        sleep(2 * MINUTE).await;
        is(&verbosity, "warn", "warn");
        verbosity.set("debug", MINUTE).expect("a filter");
        verbosity.restore();
        is(&verbosity, "warn", "warn");
        sleep(2 * MINUTE).await;
        is(&verbosity, "warn", "warn");
        assert!(verbosity.set("a=b=c", MINUTE).is_err());
        is(&verbosity, "warn", "warn");
    }
}
