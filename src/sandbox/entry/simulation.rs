//! Thousands of random lives of one sandbox. The world keeps what a careful observer would: which
//! flights are in the air, who waits for which bell, what the control plane said and when. After every
//! event the invariants of the state machine must hold.

use std::{
    cell::{Cell, OnceCell},
    collections::VecDeque,
};

use fastrand::Rng;

use super::*;
use crate::{
    sandbox::{bell::Ticket, history::History, leave::Leave, ports::Sleep},
    types::{Access, CredentialDigest, Credentials, Denial, Node, Port, Secret},
};

mod rules;

const SEEDS: u64 = 3_000;
const EVENTS: usize = 300;

#[derive(Debug)]
enum Flying {
    Lookup { flight: FlightId, epoch: u64, launched: u64 },
    Wake { flight: FlightId, digest: CredentialDigest, epoch: u64 },
}

struct Waiter {
    ticket: Ticket,
    caller: usize,
    since: Instant,
    wakes: u8,
}

fn random_policy(rng: &mut Rng) -> Policy {
    let ms = Duration::from_millis;
    Policy {
        ttl: ms([0, 20, 1000][rng.usize(..3)]),
        ttl_with_push: ms([0, 500, 10_000][rng.usize(..3)]),
        stale_if_error: ms([0, 500, 60_000][rng.usize(..3)]),
        negative_ttl: ms([0, 30, 1000][rng.usize(..3)]),
        max_held_per_sandbox: [3, 10, 1000][rng.usize(..3)],
    }
}

struct World {
    rng: Rng,
    entry: Entry,
    history: History,
    policy: Policy,
    callers: Vec<Credentials>,
    now: Instant,
    serial: u64,
    term: Term,
    /// Bumped by every change, be it pushed or missed between two terms: an answer asked for earlier is out of date.
    epoch: u64,
    /// The last that was pushed.
    pushed: u64,
    flying: Vec<Flying>,
    waiters: VecDeque<Waiter>,
    /// The catalog fails now and then; otherwise answers must be up to date.
    outages: bool,
    /// A generation whose place was found empty, and when: it serves again only after a later answer.
    reported: Option<(Generation, u64)>,
    /// When the last lookup that was answered began.
    answered: u64,
    told_locks: bool,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64, start: Instant) -> Self {
        let mut rng = Rng::with_seed(seed);
        let policy = random_policy(&mut rng);
        let token = |text: &str| (!text.is_empty()).then(|| Secret::new(text));
        let mut callers: Vec<_> = ["right", "wrong", ""]
            .into_iter()
            .map(|text| Credentials { port: Port::ENVD, traffic_token: None, access_token: token(text) })
            .collect();
        for n in 0..rng.usize(..12) {
            callers.push(Credentials {
                port: Port::ENVD,
                traffic_token: None,
                access_token: token(&format!("wrong{n}")),
            });
        }
        Self {
            outages: rng.bool(),
            told_locks: rng.bool(),
            entry: Entry::default(),
            history: History::default(),
            policy,
            callers,
            now: start,
            serial: 0,
            term: if rng.bool() { Term::of(1) } else { Term::NONE },
            epoch: 0,
            pushed: 0,
            flying: Vec::new(),
            waiters: VecDeque::new(),
            reported: None,
            answered: 0,
            log: Vec::new(),
            rng,
        }
    }

    fn apply(&mut self, event: Event<'_>) -> Act {
        self.log.push(format!("{event:?}"));
        self.serial += 1;
        let step = Step { now: self.now, serial: self.serial, term: self.term, former: None };
        let act = self.history.apply(&mut self.entry, event, step, &self.policy, self.serial);
        match &act.launch {
            Some(Launch::Locate { flight }) => {
                self.flying.push(Flying::Lookup { flight: *flight, epoch: self.epoch, launched: self.serial });
            }
            Some(Launch::Resume { flight, .. }) => {
                // Filled in by `want`, which knows for whom.
                let digest = self.callers[0].digest();
                self.flying.push(Flying::Wake { flight: *flight, digest, epoch: self.epoch });
            }
            None => {}
        }
        act
    }

    fn want(&mut self, caller: usize, since: Instant, wakes: u8, before: Option<Place>) {
        let credentials = self.callers[caller].clone();
        let digest = OnceCell::new();
        let room = self.rng.u8(..20) > 0;
        let may_wake = wakes < 2;
        let leave = match self.rng.u8(..10) {
            0 => Err(Refusal::Gone(Reason::NotWoken)),
            1 => Err(Refusal::Suspended(Duration::from_secs(1))),
            2 => Err(Refusal::TooManyWakes(Duration::from_secs(1))),
            _ => Ok(()),
        };
        let asked = Cell::new(false);
        let give = || {
            asked.set(true);
            leave.clone()
        };
        let rested = matches!(&self.entry.state, State::Unknown | State::Asleep(_) | State::Gone(..));
        let (held, parked) = (self.entry.held(), before.is_some());
        let act = self.apply(Event::Wanted(Want {
            credentials: &credentials,
            digest: &digest,
            since,
            room,
            parked,
            may_wake,
            leave: Leave(&give),
            doubts: false,
        }));
        if matches!(act.launch, Some(Launch::Resume { .. }))
            && let Some(Flying::Wake { digest: of, .. }) = self.flying.last_mut()
        {
            *of = credentials.digest();
            assert!(asked.get() && leave.is_ok(), "a wake without leave");
            assert!(may_wake, "a wake for a request that had its share");
            assert!(!(self.told_locks && caller != 0), "a wake for a wrong token");
        }
        match act.answer {
            Answer::Park(mut ticket) => {
                ticket.place = before.or_else(|| ticket.place.take());
                assert!(room && (parked || held < self.policy.max_held_per_sandbox), "parked beyond the bound");
                self.waiters.push_back(Waiter { ticket, caller, since, wakes });
            }
            Answer::Go(route) => {
                self.check_route(&route, since, room && (parked || held < self.policy.max_held_per_sandbox));
            }
            Answer::Refuse(Refusal::TooManyHeld) => {
                assert!(!room || (!parked && held >= self.policy.max_held_per_sandbox), "refused below the bound");
                assert!(act.launch.is_none(), "a call on behalf of a refused request");
            }
            Answer::Refuse(refusal @ (Refusal::Denied(_) | Refusal::Exhausted(_))) => {
                let exhausted = matches!(refusal, Refusal::Exhausted(_));
                assert!(caller != 0 || exhausted, "the right token was denied");
            }
            Answer::Refuse(refusal @ (Refusal::Suspended(_) | Refusal::TooManyWakes(_))) => {
                assert!(asked.get() && Err(refusal) == leave, "refused leave that it had");
                assert!(rested, "it could have joined a wake");
            }
            Answer::Refuse(Refusal::Gone(Reason::NotWoken)) => {
                assert!(rested && leave == Err(Refusal::Gone(Reason::NotWoken)), "not woken for want of leave");
            }
            Answer::Refuse(Refusal::Restless) => assert!(!may_wake),
            Answer::Refuse(Refusal::Unavailable) => assert!(self.outages, "unavailable without an outage"),
            Answer::Refuse(Refusal::Gone(_)) => {}
            Answer::None => panic!("a want without an answer"),
        }
    }

    fn land(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.flying.len());
        let lost = self.outages && self.rng.u8(..10) == 0;
        match self.flying.swap_remove(at) {
            Flying::Lookup { flight, .. } | Flying::Wake { flight, .. } if lost => {
                self.apply(Event::Lost { flight });
            }
            // Nobody waits for it any more, or waking was switched off.
            Flying::Wake { flight, .. } if self.rng.u8(..8) == 0 => {
                self.apply(Event::NotAsked { flight });
            }
            Flying::Lookup { flight, epoch, launched } => {
                let outcome = self.lookup_outcome(epoch);
                self.answered = self.answered.max(launched);
                self.apply(Event::Located { flight, outcome });
            }
            Flying::Wake { flight, digest, epoch } => {
                let outcome = self.wake_outcome(digest, epoch);
                self.apply(Event::Resumed { flight, outcome, took: Duration::from_millis(5) });
            }
        }
    }

    fn lookup_outcome(&mut self, epoch: u64) -> Result<Located, ()> {
        Ok(match self.rng.u8(..10) {
            0..3 => Located::Running(self.placement(epoch)),
            3..5 if !self.told_locks => Located::Absent,
            3..7 => Located::Asleep(Sleep {
                barred: (self.rng.u8(..6) == 0).then_some(Reason::AutoResumeOff),
                access: self.told_locks.then(|| Access { envd_token: Some(Secret::new("right")), ..Access::default() }),
            }),
            7 => Located::Gone(Reason::Killed),
            _ if self.outages => return Err(()),
            _ => Located::Running(self.placement(epoch)),
        })
    }

    fn wake_outcome(&mut self, digest: CredentialDigest, epoch: u64) -> Result<Placement, WakeError> {
        if digest != self.callers[0].digest() {
            return Err(WakeError::Denied(Denial::Denied));
        }
        match self.rng.u8(..10) {
            0 => Err(WakeError::Gone(Reason::Killed)),
            1 => Err(WakeError::Exhausted("your limit".into())),
            2 => Err(WakeError::Transitioning),
            3 if self.outages => Err(WakeError::Unavailable("down".into())),
            _ => Ok(self.placement(epoch)),
        }
    }

    fn placement(&mut self, epoch: u64) -> Placement {
        let node = Node::new(["10.0.0.1", "10.0.0.2"][self.rng.usize(..2)]);
        Placement { node, execution: Some(epoch.to_string().into()), access: None, until: None }
    }

    /// Beyond so many void answers the machine takes one that is out of date, on purpose.
    fn takes_anything(&self) -> bool {
        matches!(&self.entry.state, State::Locating(locating) if locating.voided == MAX_VOIDED)
    }

    fn push(&mut self) {
        if self.takes_anything() {
            return;
        }
        self.epoch += 1;
        self.pushed = self.epoch;
        self.apply(Event::Changed);
    }

    /// One term ends and another begins; a change in between was told to nobody.
    fn miss(&mut self) {
        if self.takes_anything() || self.term == Term::NONE {
            return;
        }
        self.epoch += 1;
        self.now += Duration::from_millis(1);
        self.term = Term::of(u32::try_from(self.epoch).expect("a small number") + 1);
    }

    fn stale_news(&mut self) {
        let before = format!("{:?} {:?}", self.entry, self.history);
        let nobody = FlightId(u64::MAX);
        let placement = self.placement(0);
        for event in [
            Event::Located { flight: nobody, outcome: Ok(Located::Gone(Reason::Killed)) },
            Event::Located { flight: nobody, outcome: Err(()) },
            Event::Resumed { flight: nobody, outcome: Ok(placement), took: Duration::ZERO },
            Event::Resumed { flight: nobody, outcome: Err(WakeError::Gone(Reason::Killed)), took: Duration::ZERO },
            Event::Lost { flight: nobody },
            Event::NotAsked { flight: nobody },
            Event::NotThere { generation: Generation(u64::MAX), finding: Finding::Disowned },
        ] {
            self.apply(event);
        }
        let after = format!("{:?} {:?}", self.entry, self.history);
        assert_eq!(before, after, "stale news changed the entry, or is told");
    }

    fn not_there(&mut self) {
        let (State::Running(known) | State::Locating(Locating { known: Some(known), .. })) = &self.entry.state else {
            return;
        };
        let generation = known.route.generation;
        if self.takes_anything() {
            return;
        }
        let finding = if self.rng.bool() { Finding::Disowned } else { Finding::PortClosed };
        self.apply(Event::NotThere { generation, finding });
        let doubted = matches!(&self.entry.state, State::Locating(locating) if locating.doubt == Some(Doubt::Place));
        if doubted && finding.doubt() == Doubt::Place {
            // A lookup that this report launched has this very number.
            self.reported = Some((generation, self.serial - 1));
        }
    }

    /// Every waiter whose flight landed asks again, as the resolver does.
    fn wake_waiters(&mut self) {
        for _ in 0..self.waiters.len() {
            let Some(waiter) = self.waiters.pop_front() else { return };
            if let Some(ending) = waiter.ticket.landed() {
                let Waiter { mut ticket, caller, since, wakes } = waiter;
                self.want(caller, since, wakes + u8::from(ending == Ending::Woken), ticket.place.take());
            } else {
                self.waiters.push_back(waiter);
            }
        }
    }

    fn turn(&mut self) {
        match self.rng.u8(..20) {
            0..8 => {
                let caller = if self.rng.bool() { 0 } else { self.rng.usize(..self.callers.len()) };
                self.want(caller, self.now, 0, None);
            }
            8..12 => self.land(),
            12 => self.push(),
            17 => self.miss(),
            13 => self.not_there(),
            14 => self.stale_news(),
            15 if !self.waiters.is_empty() => {
                let at = self.rng.usize(..self.waiters.len());
                self.waiters.remove(at);
            }
            // An operator changes the settings.
            16 if self.rng.u8(..8) == 0 => self.policy = random_policy(&mut self.rng),
            _ => self.now += Duration::from_millis(self.rng.u64(..200)),
        }
        self.check();
        self.wake_waiters();
        self.check();
    }

    /// Let everything land: nobody may be left waiting.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if self.waiters.is_empty() {
                break;
            }
            assert!(!self.flying.is_empty(), "waiters, and nothing in flight");
            self.land();
            self.check();
            self.wake_waiters();
        }
        assert!(self.waiters.is_empty(), "a waiter was forgotten");
        assert_eq!(self.entry.held(), 0);
    }
}

#[test]
fn no_life_of_a_sandbox_breaks_the_rules() {
    let start = Instant::now();
    for seed in 0..SEEDS {
        let mut world = World::new(seed, start);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..EVENTS {
                world.turn();
            }
            world.settle();
        }));
        if let Err(panic) = run {
            let tail = world.log.len().saturating_sub(12);
            eprintln!("seed {seed}, last events: {:#?}\nentry: {:?}", &world.log[tail..], world.entry);
            std::panic::resume_unwind(panic);
        }
    }
}
