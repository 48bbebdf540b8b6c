//! What operators may see of one sandbox: no token, no credentials.

use serde::Serialize;
use tokio::time::Instant;

use super::entry::{Entry, State};
use crate::types::{Route, SandboxId};

/// A snapshot of an entry; durations are in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    sandbox_id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<RouteView>,
    /// Requests that wait for it now.
    held: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_wake: Option<LastWake>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RouteView {
    node: Option<String>,
    execution: Option<String>,
    generation: u64,
    /// Since the control plane last said so.
    confirmed_ms_ago: u128,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LastWake {
    outcome: &'static str,
    took_ms: u128,
    ms_ago: u128,
}

impl View {
    pub(crate) fn of(id: &SandboxId, entry: &Entry, now: Instant) -> Self {
        let mut reason = None;
        let mut known = None;
        let state = match &entry.state {
            State::Unknown => "unknown",
            State::Locating(locating) => {
                known = locating.known.as_ref();
                "locating"
            }
            State::Running(running) => {
                known = Some(running);
                if running.fresh.is_some() { "running" } else { "running_stale" }
            }
            State::Asleep(asleep) => {
                reason = asleep.sleep.as_ref().and_then(|sleep| sleep.barred).map(crate::types::Reason::as_str);
                "asleep"
            }
            State::Resuming(_) => "resuming",
            State::Refusing(_) => "refusing",
            State::Gone(why, _) => {
                reason = Some(why.as_str());
                "gone"
            }
        };
        let route = known.map(|known| RouteView::of(&known.route, now - known.confirmed));
        let last_wake = entry.last_wake.map(|(woken, outcome)| LastWake {
            outcome,
            took_ms: woken.took.as_millis(),
            ms_ago: (now - woken.at).as_millis(),
        });
        Self { sandbox_id: id.to_string(), state, reason, route, held: entry.held(), last_wake }
    }
}

impl RouteView {
    fn of(route: &Route, confirmed_ago: std::time::Duration) -> Self {
        Self {
            node: route.placement.node.as_ref().map(ToString::to_string),
            execution: route.placement.execution.as_deref().map(Into::into),
            generation: route.generation.0,
            confirmed_ms_ago: confirmed_ago.as_millis(),
        }
    }
}
