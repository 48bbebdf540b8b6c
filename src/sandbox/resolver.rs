//! Waiting and flights: from "who is meant" to "where it runs", waking it if need be. The decisions
//! are the entry's; here somebody waits, and somebody asks.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::Semaphore, time::Instant};

use super::{
    bell::{Rung, Ticket},
    entry::{Act, Answer, Event, Finding, Phase, Policy, Want},
    flight,
    held::Held,
    hold::Hold,
    lease::Lease,
    ports::{Catalog, CatalogError, Resumer},
    table::{By, Table},
    view::{Page, Summary, View},
};
use crate::{
    telemetry::{Metrics, traces::Cause},
    types::{Credentials, Denial, Generation, Reason, Route, SandboxId},
};

#[cfg(test)]
mod tests;

/// Times and bounds of the resolver.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) policy: Policy,
    pub(crate) max_entries: usize,
    pub(crate) max_held: usize,
    /// The longest that one request is held.
    pub(crate) hold_timeout: Duration,
    /// One lookup.
    pub(crate) lookup_timeout: Duration,
    /// One wake call.
    pub(crate) call_timeout: Duration,
}

/// Finds and wakes sandboxes; one for all workers.
pub(crate) struct Resolver<C, R> {
    pub(super) table: Arc<Table>,
    pub(super) catalog: C,
    pub(super) resumer: R,
    pub(super) limits: ArcSwap<Limits>,
    pub(super) metrics: Arc<Metrics>,
    /// Where flights run, so that a client that leaves cancels nothing for the others.
    pub(super) control: Handle,
    held: Held,
    pub(super) lookups: Arc<Semaphore>,
}

/// Who asks, for the line that a wake leaves in the log, and for its span.
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    pub(crate) client: std::net::IpAddr,
    pub(crate) user_agent: Box<str>,
    pub(crate) path: Box<str>,
    pub(crate) cause: Option<Cause>,
}

/// What a request wants.
pub(crate) struct Ask<'a> {
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) credentials: &'a Credentials,
    /// Called when the request causes a wake.
    pub(crate) trigger: &'a dyn Fn() -> Trigger,
    /// It has been to the place that is known, in vain.
    pub(crate) doubts: bool,
}

/// The bound on lookups in flight: each has a connection to the control plane, and clients invent ids. The
/// others wait for their turn, inside a lookup's own time.
const MAX_LOOKUPS: usize = 256;

/// Why a request did not get its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    #[error("the sandbox is not there: {}", .0.as_str())]
    Gone(Reason),
    #[error("the credentials do not open it: {0:?}")]
    Denied(Denial),
    #[error("the team's limit is reached: {0}")]
    Exhausted(Arc<str>),
    #[error("the control plane gives no answer")]
    Unavailable,
    #[error("too many requests are held")]
    TooManyHeld,
    #[error("still transitioning at the end of the hold time")]
    StillTransitioning,
    #[error("not there at the end of the hold time")]
    HoldTimeout,
    #[error("woken, and gone again each time")]
    Restless,
}

impl From<super::entry::Refusal> for Unresolved {
    fn from(refusal: super::entry::Refusal) -> Self {
        use super::entry::Refusal;
        match refusal {
            Refusal::Gone(reason) => Self::Gone(reason),
            Refusal::Denied(denial) => Self::Denied(denial),
            Refusal::Exhausted(message) => Self::Exhausted(message),
            Refusal::Unavailable => Self::Unavailable,
            Refusal::TooManyHeld => Self::TooManyHeld,
            Refusal::Restless => Self::Restless,
        }
    }
}

impl<C: Catalog, R: Resumer> Resolver<C, R> {
    pub(crate) fn new(catalog: C, resumer: R, limits: Limits, metrics: Arc<Metrics>, control: Handle) -> Arc<Self> {
        let lease = Lease::new(metrics.catalog_push_up.clone());
        let table = Arc::new(Table::new(limits.policy.clone(), limits.max_entries, lease));
        catalog.tell(table.clone());
        let held = Held::new(limits.max_held, metrics.held_requests.clone());
        let lookups = Arc::new(Semaphore::new(MAX_LOOKUPS));
        let limits = ArcSwap::from_pointee(limits);
        Arc::new(Self { table, catalog, resumer, limits, metrics, control, held, lookups })
    }

    /// From now on these hold: for requests that begin to wait and for calls that begin.
    pub(crate) fn adjust(&self, limits: Limits) {
        self.table.adjust(limits.policy.clone(), limits.max_entries);
        self.held.set_max(limits.max_held);
        self.limits.store(limits.into());
    }

    pub(crate) fn catalog(&self) -> &C {
        &self.catalog
    }

    /// The hot path: where it runs, if that is known. One map read.
    pub(crate) fn route(&self, sandbox: &SandboxId, now: Instant) -> Option<Arc<Route>> {
        let route = self.table.route(sandbox, now)?;
        self.metrics.cache_hits.increment(1);
        Some(route)
    }

    /// Where it runs, after asking and waking as far as need be and `hold` allows. `since`: nothing
    /// learned after it is too old for this request.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        hold: &mut Hold,
        since: Instant,
    ) -> Result<Arc<Route>, Unresolved> {
        let (mut seat, mut place, mut ticket) = (None, None, None::<Ticket>);
        let deadline = hold.deadline(Instant::now());
        let outcome = loop {
            seat = seat.or_else(|| self.held.take_seat());
            let want = Want {
                credentials: ask.credentials,
                digest: &hold.digest,
                since,
                room: seat.is_some(),
                parked: place.is_some(),
                may_wake: hold.may_wake(),
                doubts: ask.doubts,
            };
            let Some(act) = self.table.apply(ask.sandbox, Event::Wanted(want), Instant::now()) else {
                break Err(Unresolved::Unavailable);
            };
            let ticket = match self.perform(ask.sandbox, act, Some(ask)) {
                Answer::Go(route) => break Ok(route),
                Answer::Refuse(refusal) => break Err(refusal.into()),
                Answer::None => break Err(Unresolved::Unavailable),
                // The former ticket goes only now: its place was never free in between.
                Answer::Park(next) => ticket.insert(next),
            };
            place = place.or_else(|| ticket.place.take());
            hold.begin(ticket.for_wake);
            match ticket.wait(deadline).await {
                Rung::Landed(ending) => hold.saw(ending),
                Rung::TooLate if ticket.transitioning() || hold.transitioning => {
                    break Err(Unresolved::StillTransitioning);
                }
                Rung::TooLate if ticket.for_wake => break Err(Unresolved::HoldTimeout),
                // Nobody is being woken: the catalog does not answer.
                Rung::TooLate => break Err(Unresolved::Unavailable),
            }
        };
        hold.end();
        outcome
    }

    /// The place of this generation does not have the sandbox, or nobody listens on the port: it is looked
    /// up once more.
    pub(crate) fn report(self: &Arc<Self>, sandbox: &SandboxId, generation: Generation, finding: Finding) {
        let event = Event::NotThere { generation, finding };
        if let Some(act) = self.table.apply(sandbox, event, Instant::now()) {
            self.perform(sandbox, act, None);
        }
    }

    /// Makes whatever is known of a sandbox stale: the next request asks. Whether anything was known.
    pub(crate) fn forget(&self, sandbox: &SandboxId) -> bool {
        self.table.apply(sandbox, Event::Forget, Instant::now()).is_some()
    }

    /// Asks the catalog for a sandbox that there can hardly be: any answer says that it is there.
    pub(crate) async fn probe(&self) -> Result<(), CatalogError> {
        let nobody = SandboxId::new("i00000000000000000000").ok_or_else(|| CatalogError("no id".into()))?;
        let limit = self.limits.load().lookup_timeout;
        let answer = tokio::time::timeout(limit, self.catalog.locate(&nobody)).await;
        answer.unwrap_or_else(|_| Err(CatalogError("no answer in time".into()))).map(drop)
    }

    /// What operators may see of a sandbox; `None` if nobody asked for it lately.
    pub(crate) fn view(&self, sandbox: &SandboxId) -> Option<View> {
        self.table.view(sandbox, Instant::now())
    }

    /// What operators may see of all sandboxes in this state (or in any), by id, from the one after `after`; at
    /// most `limit`. It looks at every entry: not on a thread that others wait for.
    pub(crate) fn page(&self, phase: Option<Phase>, after: Option<&SandboxId>, limit: usize) -> Page {
        self.table.page(phase, after, limit, Instant::now())
    }

    /// The sandboxes with the most of this, at most `limit`. As costly as [`Self::page`].
    pub(crate) fn top(&self, by: By, limit: usize) -> Vec<Summary> {
        self.table.top(by, limit, Instant::now())
    }

    /// Keeps the table within its bounds, for ever.
    pub(crate) async fn keep_house(self: Arc<Self>) {
        let mut tick = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.table.crowded() => {}
            }
            self.table.sweep(Instant::now());
        }
    }

    /// Starts the flight that the entry asked for, if any.
    pub(super) fn perform(self: &Arc<Self>, sandbox: &SandboxId, act: Act, ask: Option<&Ask<'_>>) -> Answer {
        match act.launch {
            Some(launch) => flight::start(self, sandbox, launch, ask),
            None if matches!(act.answer, Answer::Park(_)) => self.metrics.coalesced_requests.increment(1),
            None => {}
        }
        act.answer
    }
}
