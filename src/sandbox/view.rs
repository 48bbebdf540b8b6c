//! What operators may see of sandboxes: no token, no credentials.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::{
    entry::State,
    history::{LastWake, Record},
    slot::Slot,
};
use crate::types::{Reason, Route, SandboxId};

/// A snapshot of one sandbox; durations are in milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<RouteView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_wake: Option<LastWakeView>,
    /// Oldest first.
    history: Vec<RecordView>,
}

/// What is read of an entry while others may wait for it: numbers, nothing on the heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    state: &'static str,
    held: usize,
    requests: u64,
    wakes: u32,
    /// When a request last wanted it, in the table's milliseconds.
    wanted: u64,
}

/// A line in a list of sandboxes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    #[serde(serialize_with = "as_text")]
    sandbox_id: SandboxId,
    state: &'static str,
    /// Requests that wait for it now.
    held: usize,
    /// Requests since it is known.
    requests: u64,
    /// Wakes started since it is known.
    wakes: u32,
    /// Since a request last wanted it.
    wanted_ms_ago: u64,
}

/// Some sandboxes, by id.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) sandboxes: Vec<Summary>,
    /// There are more, after this one.
    #[serde(serialize_with = "as_text_if_any")]
    pub(crate) next: Option<SandboxId>,
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
struct LastWakeView {
    outcome: &'static str,
    took_ms: u128,
    ms_ago: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordView {
    /// RFC 3339; with `times`, the last of them.
    at: String,
    ms_ago: u64,
    event: &'static str,
    cause: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    before: &'static str,
    after: &'static str,
    times: u32,
    /// When it happened first, if several times.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_at: Option<String>,
}

/// One moment by the three clocks of this room.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// The table's milliseconds.
    pub(crate) at: u64,
    pub(crate) clock: SystemTime,
}

impl Moment {
    fn since(self, at: u64) -> u64 {
        self.at.saturating_sub(at)
    }

    /// What the clock says now, less the age: where the clock was set since, this is by the better time.
    fn by_the_clock(self, at: u64) -> String {
        let then = self.clock.checked_sub(Duration::from_millis(self.since(at))).unwrap_or(SystemTime::UNIX_EPOCH);
        humantime::format_rfc3339_millis(then).to_string()
    }
}

impl View {
    pub(crate) fn of(id: &SandboxId, slot: &Slot, moment: Moment) -> Self {
        let reason = match &slot.entry.state {
            State::Asleep(asleep) => asleep.sleep.as_ref().and_then(|sleep| sleep.barred),
            State::Gone(reason, _) => Some(*reason),
            _ => None,
        };
        let known = slot.entry.known();
        Self {
            summary: Summary::of(id.clone(), Count::of(slot), moment),
            reason: reason.map(Reason::as_str),
            route: known.map(|known| RouteView::of(&known.route, moment.now - known.confirmed)),
            last_wake: slot.history.last_wake().map(|wake| LastWakeView::of(wake, moment)),
            history: slot.history.records().iter().map(|record| RecordView::of(record, moment)).collect(),
        }
    }
}

impl Count {
    pub(crate) fn of(slot: &Slot) -> Self {
        Self {
            state: slot.entry.phase().as_str(),
            held: slot.entry.held(),
            requests: slot.requests(),
            wakes: slot.wakes(),
            wanted: slot.wanted(),
        }
    }
}

impl Summary {
    pub(crate) fn of(id: SandboxId, count: Count, moment: Moment) -> Self {
        let Count { state, held, requests, wakes, wanted } = count;
        Self { sandbox_id: id, state, held, requests, wakes, wanted_ms_ago: moment.since(wanted) }
    }

    #[cfg(test)]
    pub(crate) fn id(&self) -> &SandboxId {
        &self.sandbox_id
    }
}

impl RouteView {
    fn of(route: &Route, confirmed_ago: Duration) -> Self {
        Self {
            node: route.placement.node.as_ref().map(ToString::to_string),
            execution: route.placement.execution.as_deref().map(Into::into),
            generation: route.generation.0,
            confirmed_ms_ago: confirmed_ago.as_millis(),
        }
    }
}

impl LastWakeView {
    fn of(wake: LastWake, moment: Moment) -> Self {
        let LastWake { cause, took, at } = wake;
        Self { outcome: cause.as_str(), took_ms: took.as_millis(), ms_ago: moment.since(at) }
    }
}

impl RecordView {
    fn of(record: &Record, moment: Moment) -> Self {
        Self {
            at: moment.by_the_clock(record.last),
            ms_ago: moment.since(record.last),
            event: record.what.as_str(),
            cause: record.cause.as_str(),
            node: record.node.as_ref().map(ToString::to_string),
            before: record.before.as_str(),
            after: record.after.as_str(),
            times: record.times,
            first_at: (record.times > 1).then(|| moment.by_the_clock(record.first)),
        }
    }
}

fn as_text<S: Serializer>(id: &SandboxId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

#[expect(clippy::ref_option, reason = "serde hands the field over as it is")]
fn as_text_if_any<S: Serializer>(id: &Option<SandboxId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.as_ref().map(SandboxId::as_str).serialize(serializer)
}
