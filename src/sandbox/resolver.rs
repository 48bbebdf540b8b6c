//! Waiting and flights: from "who is meant" to "where it runs", waking it if need be. The decisions
//! are the entry's; here somebody waits, and somebody asks.

use std::{future::Future, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    bell::{Ending, Rung, Ticket},
    entry::{Act, Answer, Event, Finding, Phase, Policy, Want},
    flight,
    held::Held,
    hold::Hold,
    lease::Lease,
    leave::{Leave, Warden},
    ports::{Catalog, CatalogError, Resumer},
    promises::Promises,
    table::{By, Table},
    turns::Turns,
    unresolved::Unresolved,
    usual::Usual,
    view::{Page, Summary, View},
};
use crate::{
    telemetry::{Metrics, traces::Cause},
    types::{ClientNet, Credentials, Generation, Route, SandboxId},
};

#[cfg(test)]
mod tests;

/// Times and bounds of the resolver.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) policy: Policy,
    pub(crate) max_entries: usize,
    pub(crate) max_held: usize,
    /// The same per client; 0 = no bound.
    pub(crate) max_held_per_client: usize,
    /// Wake calls at once.
    pub(crate) max_concurrent: usize,
    /// Held requests let through per sandbox and second after its wake; 0 = all at once.
    pub(crate) release_rate: u32,
    /// Wakes that one client may cause in any minute; 0 = no bound.
    pub(crate) max_wakes_per_minute: usize,
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
    pub(super) lookups: Arc<Turns>,
    pub(super) wakes: Arc<Turns>,
    pub(super) warden: Warden,
    promises: Promises,
    pub(super) usual: Usual,
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
#[expect(clippy::struct_excessive_bools, reason = "facts about one request, each read in one place")]
pub(crate) struct Ask<'a> {
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) credentials: &'a Credentials,
    pub(crate) client: ClientNet,
    /// Whether it may cause a wake, as far as its own wishes and the operator's rules go. It joins one in any case.
    pub(crate) wakes: bool,
    /// Whether it is held while it waits, and counted as that.
    pub(crate) held: bool,
    /// How long it waits for a wake before it is told that one is under way; `None`: as long as it may be held.
    pub(crate) patience: Option<Duration>,
    /// Called when the request causes a wake.
    pub(crate) trigger: &'a dyn Fn() -> Trigger,
    /// It has been to the place that is known, in vain.
    pub(crate) doubts: bool,
    /// It is with the sandbox already, and whoever asks drops the question when that comes to an end. Sockets tell of
    /// it: they are looked at before anything is started.
    pub(crate) sent: bool,
}

/// The bound on lookups in flight: each has a connection to the control plane, and clients invent ids. The
/// others wait for their turn, inside a lookup's own time.
const MAX_LOOKUPS: usize = 256;

/// Returns when this thread's sockets have been looked at, and what they tell has reached whoever it concerns: as a
/// rule. Where more tasks are ready than a turn of the runtime takes in, or another wakes this one, it may be too soon.
async fn sockets_told() {
    // A runtime goes on with a task that has yielded when others had their turn and it has looked at its sockets.
    // By the second time the tasks have run that those woke, and others that these did: HTTP/2 has a chain of them.
    for _ in 0..2 {
        yield_now().await;
    }
}

impl<C: Catalog, R: Resumer> Resolver<C, R> {
    pub(crate) fn new(catalog: C, resumer: R, limits: Limits, metrics: Arc<Metrics>, control: Handle) -> Arc<Self> {
        let lease = Lease::new(metrics.catalog_push_up.clone());
        let table = Arc::new(Table::new(limits.policy.clone(), limits.max_entries, lease));
        catalog.tell(table.clone());
        let held = Held::new(limits.max_held, limits.max_held_per_client, metrics.held_requests.clone());
        let (lookups, wakes) = (Turns::new(MAX_LOOKUPS), Turns::new(limits.max_concurrent));
        let warden = Warden::new(limits.max_wakes_per_minute, metrics.wakes_suspended.clone());
        let (limits, promises, usual) = (ArcSwap::from_pointee(limits), Promises::default(), Usual::new());
        Arc::new(Self {
            table,
            catalog,
            resumer,
            limits,
            metrics,
            control,
            held,
            lookups,
            wakes,
            warden,
            promises,
            usual,
        })
    }

    /// From now on these hold: for requests that begin to wait and for calls that begin.
    pub(crate) fn adjust(&self, limits: Limits) {
        self.table.adjust(limits.policy.clone(), limits.max_entries);
        self.held.set_max(limits.max_held, limits.max_held_per_client);
        self.wakes.set_max(limits.max_concurrent);
        self.warden.set_max_per_minute(limits.max_wakes_per_minute);
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
    pub(crate) fn resolve(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        hold: &mut Hold,
        since: Instant,
    ) -> impl Future<Output = Result<Arc<Route>, Unresolved>> {
        let start = Instant::now();
        // See `Ticket::wait`.
        async move {
            let (mut seat, mut place, mut ticket) = (None, None, None::<Ticket>);
            let mut told = None;
            let outcome = loop {
                if ask.sent {
                    sockets_told().await;
                }
                seat = seat.or_else(|| ask.held.then(|| self.held.take_seat(ask.client)).flatten());
                let (room, parked) = (seat.is_some() || !ask.held, place.is_some() || !ask.held);
                let ticket = match self.want(ask, hold, since, room, parked) {
                    Answer::Go(route) => break Ok(route),
                    Answer::Refuse(refusal) => break Err(refusal.into()),
                    Answer::None => break Err(Unresolved::Unavailable),
                    // The former ticket goes only now: its place was never free in between.
                    Answer::Park(next) => ticket.insert(next),
                };
                place = place.or_else(|| ticket.place.take());
                hold.begin(ticket.for_wake);
                if let Some(patience) = ask.patience.filter(|_| ticket.for_wake) {
                    told = told.or_else(|| Some(Instant::now() + patience));
                }
                let end = self.deadline(hold, ticket.for_wake, start);
                let (until, early) = match told.filter(|_| ticket.for_wake) {
                    Some(told) if told < end => (told, true),
                    _ => (end, false),
                };
                match ticket.wait(until).await {
                    Rung::Landed(ending) => {
                        hold.saw(ending);
                        if ending == Ending::Woken && self.let_through(ticket, until).await && early {
                            break Err(Unresolved::Waking);
                        }
                        if !ask.wakes && !ticket.for_wake {
                            // What it may not start it may join.
                            ticket.let_others_first(until).await;
                        }
                    }
                    Rung::TooLate => break Err(self.too_late(ticket, hold, early)),
                }
            };
            if matches!(outcome, Err(Unresolved::Waking | Unresolved::HoldTimeout))
                && let Some(ticket) = ticket
            {
                // Who was told that it wakes finds it awake the next time.
                ticket.promise(self.promises.make(ask.client, self.limits.load().hold_timeout));
            }
            hold.end();
            outcome
        }
    }

    /// Until when a request waits that began to at `start`.
    fn deadline(&self, hold: &Hold, for_wake: bool, start: Instant) -> Instant {
        if for_wake { hold.deadline(start) } else { hold.lookup_deadline(start, self.limits.load().hold_timeout) }
    }

    /// Asks the entry. `room`: it may be held; `parked`: it is.
    fn want(self: &Arc<Self>, ask: &Ask<'_>, hold: &Hold, since: Instant, room: bool, parked: bool) -> Answer {
        let leave = || {
            if !self.resumer.wakes() {
                // Nobody is woken anyway: the resumer says what to tell.
                return Ok(());
            }
            self.warden.leave(ask.client, ask.wakes, Instant::now())
        };
        let want = Want {
            credentials: ask.credentials,
            digest: &hold.digest,
            since,
            room,
            parked,
            may_wake: hold.may_wake(),
            leave: Leave(&leave),
            doubts: ask.doubts,
        };
        let act = self.table.apply(ask.sandbox, Event::Wanted(want), Instant::now());
        act.map_or(Answer::None, |mut act| {
            if let Answer::Park(ticket) = &mut act.answer
                && ask.wakes
            {
                ticket.want(ask.client);
            }
            self.perform(ask.sandbox, act, Some(ask))
        })
    }

    /// What a request is told that waits no longer. `early`: it could have.
    fn too_late(&self, ticket: &Ticket, hold: &Hold, early: bool) -> Unresolved {
        let limits = self.limits.load();
        if early {
            Unresolved::Waking
        } else if ticket.transitioning() || hold.transitioning {
            Unresolved::StillTransitioning
        } else if ticket.for_wake || hold.is_short_of(limits.lookup_timeout, limits.hold_timeout) {
            Unresolved::HoldTimeout
        } else {
            // Nobody is being woken: the catalog does not answer.
            Unresolved::Unavailable
        }
    }

    /// Waits for a request's turn to go to a sandbox just woken, but not beyond `until`; whether it had to wait longer.
    async fn let_through(&self, ticket: &Ticket, until: Instant) -> bool {
        let rate = self.limits.load().release_rate;
        if rate == 0 {
            return false;
        }
        let turn = Instant::now() + Duration::from_secs(1).mul_f64(f64::from(ticket.go()) / f64::from(rate));
        sleep_until(turn.min(until)).await;
        turn > until
    }

    /// How long a wake usually takes.
    pub(crate) fn usual_wake(&self) -> Duration {
        self.usual.get()
    }

    /// For how long an operator wants nothing to be woken yet; `None`: all is as usual.
    pub(crate) fn suspended_for(&self) -> Option<Duration> {
        self.warden.switch().off_for(Instant::now())
    }

    /// Nothing is woken from now on, for so long; `None`: everything is again. Calls under way go on.
    pub(crate) fn suspend(self: &Arc<Self>, time: Option<Duration>) {
        let switch = self.warden.switch();
        let Some(time) = time else {
            if switch.turn_on() {
                Self::wakes_again();
            }
            return;
        };
        let until = Instant::now() + time;
        switch.turn_off(until);
        tracing::warn!(seconds = time.as_secs(), "waking is switched off: what sleeps is 503");
        let this = self.clone();
        self.control.spawn(async move {
            sleep_until(until).await;
            if this.warden.switch().end(until) {
                Self::wakes_again();
            }
        });
    }

    fn wakes_again() {
        tracing::warn!("waking is switched on again");
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
            self.warden.sweep(Instant::now());
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
