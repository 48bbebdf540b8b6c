//! All sandboxes that anybody asked for lately: a sharded map from id to entry. Its size is bounded;
//! what nobody waits for goes when it gets crowded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use dashmap::{DashMap, Entry as Place};
use tokio::{sync::Notify, time::Instant};

use super::{
    entry::{Act, At, Event, Policy, Step},
    lease::{Lease, Term},
    ports::Listener,
    slot::Slot,
    view::{Moment, View},
};
use crate::types::{Route, SandboxId};

pub(crate) use self::walk::By;

mod walk;

pub(crate) struct Table {
    map: DashMap<SandboxId, Slot>,
    policy: ArcSwap<Policy>,
    max_entries: AtomicUsize,
    /// Flights and generations are numbered from it; never reused.
    serial: AtomicU64,
    entries: AtomicUsize,
    born: Instant,
    crowded: Notify,
    lease: Arc<Lease>,
}

const SHARDS: usize = 256;
/// Sandboxes that nobody asked for in this time are forgotten even when there is room.
const IDLE: Duration = Duration::from_mins(10);

impl Table {
    pub(crate) fn new(policy: Policy, max_entries: usize, lease: Lease) -> Self {
        Self {
            // Many small shards: a sweep locks one at a time, and a worker that reads it waits.
            map: DashMap::with_shard_amount(SHARDS),
            policy: ArcSwap::from_pointee(policy),
            max_entries: max_entries.into(),
            serial: AtomicU64::new(1),
            entries: AtomicUsize::new(0),
            born: Instant::now(),
            crowded: Notify::new(),
            lease: Arc::new(lease),
        }
    }

    /// From now on these hold; for what is known already, as far as they are shorter than what it was learned
    /// with.
    pub(crate) fn adjust(&self, policy: Policy, max_entries: usize) {
        self.policy.store(policy.into());
        self.max_entries.store(max_entries, Relaxed);
        // The bound may be below what there is.
        self.crowded.notify_one();
    }

    /// The hot path: where the sandbox is, if that may be used unasked. One shard, read-locked. Each request
    /// begins here, and is counted here.
    pub(crate) fn route(&self, id: &SandboxId, now: Instant) -> Option<Arc<Route>> {
        let slot = self.map.get(id)?;
        slot.count_request();
        let route = slot.entry.route(self.at(now), &self.policy.load())?.clone();
        slot.touch(self.millis(now));
        Some(route)
    }

    /// Applies the event under the shard's lock. Only a want makes an entry.
    pub(crate) fn apply(&self, id: &SandboxId, event: Event<'_>, now: Instant) -> Option<Act> {
        let step = self.step(now);
        let at = self.millis(now);
        if !matches!(event, Event::Wanted(_)) {
            return Some(self.map.get_mut(id)?.apply(event, step, &self.policy.load(), at));
        }
        let mut slot = match self.map.entry(id.clone()) {
            Place::Occupied(slot) => slot.into_ref(),
            Place::Vacant(place) => {
                if self.entries.fetch_add(1, Relaxed) + 1 >= self.crowded_at() {
                    self.crowded.notify_one();
                }
                place.insert(Slot::new())
            }
        };
        slot.touch(at);
        Some(slot.apply(event, step, &self.policy.load(), at))
    }

    /// What operators may see of it.
    pub(crate) fn view(&self, id: &SandboxId, now: Instant) -> Option<View> {
        let moment = self.moment(now);
        self.map.get(id).map(|slot| View::of(id, &slot, moment))
    }

    fn at(&self, now: Instant) -> At {
        let term = self.lease.term(now);
        At { now, term, former: if term == Term::NONE { self.lease.former(now) } else { None } }
    }

    fn step(&self, now: Instant) -> Step {
        let At { now, term, former } = self.at(now);
        Step { now, serial: self.serial.fetch_add(1, Relaxed), term, former }
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment { now, at: self.millis(now), clock: SystemTime::now() }
    }

    /// Returns when it gets crowded: time for [`Self::sweep`].
    pub(crate) async fn crowded(&self) {
        self.crowded.notified().await;
    }

    /// Forgets what is of no use any more, ids that nobody has and sandboxes that nobody wants; when crowded, also
    /// what is: negatives first, then the routes unused the longest. Never an entry that somebody waits for.
    pub(crate) fn sweep(&self, now: Instant) {
        let (policy, at) = (self.policy.load(), self.at(now));
        self.forget(|slot| slot.useless(at, &policy) || self.idle(slot, now) > IDLE);
        if self.entries.load(Relaxed) < self.crowded_at() {
            return;
        }
        self.forget(|slot| !slot.entry.is_route());
        let max_entries = self.max_entries.load(Relaxed);
        let mut excess = self.entries.load(Relaxed).saturating_sub(max_entries - max_entries / 8);
        if excess > 0 {
            let mut idle: Vec<_> = self.map.iter().map(|slot| self.idle(&slot, now)).collect();
            idle.sort_unstable();
            let goes_from = idle.get(idle.len().saturating_sub(excess)).copied().unwrap_or_default();
            self.forget(|slot| {
                let goes = excess > 0 && self.idle(slot, now) >= goes_from;
                excess -= usize::from(goes);
                goes
            });
        }
    }

    fn forget(&self, mut goes: impl FnMut(&Slot) -> bool) {
        let mut gone = 0;
        self.map.retain(|_, slot| {
            let goes = slot.entry.in_peace() && goes(slot);
            gone += usize::from(goes);
            !goes
        });
        self.entries.fetch_sub(gone, Relaxed);
    }

    fn idle(&self, slot: &Slot, now: Instant) -> Duration {
        Duration::from_millis(self.millis(now).saturating_sub(slot.wanted()))
    }

    fn millis(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }

    /// A sixteenth below the bound, so that the bound holds while the sweep runs.
    fn crowded_at(&self) -> usize {
        let max_entries = self.max_entries.load(Relaxed);
        max_entries - max_entries / 16
    }
}

impl Listener for Table {
    fn changed(&self, sandbox: &str) {
        let now = Instant::now();
        if let Some(mut slot) = self.map.get_mut(sandbox) {
            let step = self.step(now);
            slot.apply(Event::Changed, step, &self.policy.load(), self.millis(now));
        }
    }

    fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sandbox::{
            entry::{Answer, Launch, Want},
            leave::Leave,
            ports::{Located, Sleep},
        },
        types::{Credentials, Node, Placement, Port, Reason},
    };

    const SECOND: Duration = Duration::from_secs(1);

    pub(super) fn table(max_entries: usize) -> Table {
        let policy = Policy {
            ttl: SECOND,
            ttl_with_push: 60 * SECOND,
            stale_if_error: SECOND,
            negative_ttl: SECOND,
            max_held_per_sandbox: 10,
        };
        Table::new(policy, max_entries, Lease::new(metrics::Gauge::noop()))
    }

    fn id(n: usize) -> SandboxId {
        SandboxId::new(&format!("s{n}")).expect("an id")
    }

    fn want(table: &Table, n: usize, now: Instant) -> Act {
        want_of(table, &id(n), now)
    }

    pub(super) fn want_of(table: &Table, id: &SandboxId, now: Instant) -> Act {
        let credentials = Credentials { port: Port::ENVD, traffic_token: None, access_token: None };
        let digest = std::cell::OnceCell::new();
        let want = Want {
            credentials: &credentials,
            digest: &digest,
            since: now,
            room: true,
            parked: false,
            may_wake: true,
            leave: Leave::GIVEN,
            doubts: false,
        };
        table.apply(id, Event::Wanted(want), now).expect("a want always acts")
    }

    fn settle(table: &Table, n: usize, located: Located, now: Instant) {
        let act = want(table, n, now);
        let Some(Launch::Locate { flight }) = act.launch else { panic!("no lookup: {act:?}") };
        table.apply(&id(n), Event::Located { flight, outcome: Ok(located) }, now);
    }

    fn running() -> Located {
        Located::Running(Placement { node: Node::new("10.0.0.1"), execution: None, access: None, until: None })
    }

    #[test]
    fn a_crowd_pushes_out_negatives_first_then_the_longest_unused_routes() {
        let table = table(64);
        let start = Instant::now();
        for n in 0..40 {
            settle(&table, n, running(), start + Duration::from_millis(n as u64));
        }
        for n in 40..60 {
            settle(&table, n, Located::Gone(Reason::Unknown), start + SECOND / 2);
        }
        table.sweep(start + SECOND / 2);
        let left = |range: std::ops::Range<usize>| range.filter(|n| table.map.contains_key(&id(*n))).count();
        assert_eq!((left(0..40), left(40..60)), (40, 0));
        for n in 60..90 {
            settle(&table, n, running(), start + SECOND / 2);
        }
        table.sweep(start + SECOND / 2);
        assert_eq!((left(0..14), left(14..90)), (0, 56));
        assert_eq!(table.entries.load(Relaxed), table.map.len());
    }

    #[test]
    fn what_became_of_a_sandbox_is_remembered_and_ids_that_nobody_has_are_not() {
        let table = table(64);
        let now = Instant::now();
        settle(&table, 1, Located::Asleep(Sleep { barred: Some(Reason::AutoResumeOff), access: None }), now);
        settle(&table, 2, Located::Gone(Reason::Unknown), now);
        table.sweep(now + IDLE);
        assert!(table.map.contains_key(&id(1)) && !table.map.contains_key(&id(2)));
        table.sweep(now + IDLE + SECOND);
        assert_eq!(table.map.len(), 0);
    }

    #[test]
    fn an_entry_that_somebody_waits_for_stays_whatever_the_crowd() {
        let table = table(16);
        let now = Instant::now();
        let waiting: Vec<_> = (0..16).map(|n| want(&table, n, now)).collect();
        for n in 16..32 {
            settle(&table, n, Located::Gone(Reason::Unknown), now);
        }
        table.sweep(now + 2 * IDLE);
        assert!((0..16).all(|n| table.map.contains_key(&id(n))));
        assert_eq!(table.map.len(), 16);
        assert!(waiting.iter().all(|act| matches!(act.answer, Answer::Park(_))));
    }

    #[tokio::test]
    async fn a_crowd_is_announced_before_the_bound_is_reached() {
        let table = table(32);
        for n in 0..30 {
            want(&table, n, Instant::now());
        }
        table.crowded().await;
        assert!(table.map.len() < 32);
    }

    #[test]
    fn events_for_unknown_sandboxes_make_no_entry() {
        let table = table(16);
        assert!(table.apply(&id(1), Event::Changed, Instant::now()).is_none());
        assert_eq!(table.map.len(), 0);
    }
}
