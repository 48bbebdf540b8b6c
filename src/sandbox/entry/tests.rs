//! The state table, row by row: what stands in it is what the machine does.

use std::cell::OnceCell;

use super::{locating::SLOW, *};
use crate::{
    sandbox::{lease::Former, leave::Leave, ports::Sleep},
    types::{Access, CredentialDigest, Credentials, Denial, Node, Port, Secret},
};

mod terms;
mod wakes;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// An entry and the time, driven by hand.
struct Stage {
    entry: Entry,
    policy: Policy,
    now: Instant,
    serial: u64,
    term: Term,
    former: Option<Former>,
}

impl Stage {
    fn new() -> Self {
        let policy = Policy {
            ttl: SECOND,
            ttl_with_push: 60 * SECOND,
            stale_if_error: MINUTE,
            negative_ttl: SECOND,
            max_held_per_sandbox: 100,
        };
        Self { entry: Entry::default(), policy, now: Instant::now(), serial: 0, term: Term::NONE, former: None }
    }

    /// An entry whose first lookup said this, a moment ago.
    fn knowing(located: Located) -> Self {
        let mut stage = Self::new();
        let flight = located_flight(&stage.want(&owner()));
        stage.on(Event::Located { flight, outcome: Ok(located) });
        stage
    }

    fn on(&mut self, event: Event<'_>) -> Act {
        self.serial += 1;
        self.entry.on(
            event,
            Step { now: self.now, serial: self.serial, term: self.term, former: self.former },
            &self.policy,
        )
    }

    fn at(&self) -> At {
        At { now: self.now, term: self.term, former: self.former }
    }

    fn want(&mut self, credentials: &Credentials) -> Act {
        let digest = OnceCell::new();
        let want = wanting(credentials, &digest, self.now);
        self.on(Event::Wanted(want))
    }

    fn route(&mut self) -> Arc<Route> {
        match self.want(&owner()).answer {
            Answer::Go(route) => route,
            other => panic!("no route but {other:?}"),
        }
    }

    fn refusal(&mut self, credentials: &Credentials) -> Refusal {
        match self.want(credentials) {
            Act { answer: Answer::Refuse(refusal), launch: None } => refusal,
            other => panic!("no refusal but {other:?}"),
        }
    }

    fn resumed(&mut self, flight: FlightId, outcome: Result<Placement, WakeError>) {
        self.on(Event::Resumed { flight, outcome, took: SECOND });
    }
}

fn holder_of(token: &str) -> Credentials {
    Credentials { port: Port::ENVD, traffic_token: None, access_token: Some(Secret::new(token)) }
}

fn owner() -> Credentials {
    holder_of("right")
}

fn at(node: &str, execution: &str) -> Placement {
    Placement { node: Node::new(node), execution: Some(execution.into()), access: None, until: None }
}

fn asleep() -> Located {
    Located::Asleep(Sleep { barred: None, access: None })
}

fn located_flight(act: &Act) -> FlightId {
    match act.launch {
        Some(Launch::Locate { flight }) => flight,
        ref other => panic!("no lookup but {other:?}"),
    }
}

fn wake_flight(act: &Act) -> FlightId {
    match act.launch {
        Some(Launch::Resume { flight, .. }) => flight,
        ref other => panic!("no wake but {other:?}"),
    }
}

fn parked(act: Act) -> crate::sandbox::bell::Ticket {
    match act.answer {
        Answer::Park(ticket) => ticket,
        other => panic!("not parked but {other:?}"),
    }
}

#[test]
fn unknown_is_looked_up_once_for_all_who_come() {
    let mut stage = Stage::new();
    let first = stage.want(&owner());
    let flight = located_flight(&first);
    let second = stage.want(&holder_of("other"));
    assert!(second.launch.is_none());
    let tickets = [parked(first), parked(second)];
    assert_eq!(stage.entry.held(), 2);
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    assert!(tickets.iter().all(|ticket| ticket.landed() == Some(Ending::Told)));
    assert_eq!(stage.route().placement.node, Node::new("10.0.0.1"));
}

#[test]
fn a_running_route_is_used_for_its_time_and_then_asked_for() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    stage.now += SECOND;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    assert_eq!(stage.route().generation, generation, "the same life at the same place");
    stage.now += SECOND;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "b"))) });
    assert!(stage.route().generation > generation, "another life at the same place");
}

#[test]
fn a_busy_route_is_asked_for_ahead_of_its_end_and_nobody_waits() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    stage.now += SECOND * 7 / 10;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    stage.now += SECOND / 10;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none(), "somebody must come and ask");
    let act = stage.want(&owner());
    assert!(matches!(act.answer, Answer::Go(_)));
    let flight = located_flight(&act);
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some(), "the others go on");
    assert!(matches!(stage.want(&owner()), Act { answer: Answer::Go(_), launch: None }));
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    stage.now += SECOND * 7 / 10;
    assert_eq!(stage.entry.route(stage.at(), &stage.policy).map(|route| route.generation), Some(generation));
}

#[test]
fn shorter_times_hold_for_what_is_known_and_longer_ones_for_what_is_learned() {
    let short = Duration::from_millis(100);
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    stage.policy.ttl = MINUTE;
    stage.now += SECOND / 2;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    stage.policy.ttl = short;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
    let flight = located_flight(&stage.want(&owner()));
    stage.policy.ttl = MINUTE;
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    stage.now += SECOND * 2;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    for located in [Located::Gone(Reason::Killed), asleep()] {
        let mut stage = Stage::knowing(located);
        stage.policy.negative_ttl = MINUTE;
        stage.now += SECOND / 2;
        assert!(!stage.entry.useless(stage.at(), &stage.policy));
        stage.policy.negative_ttl = short;
        assert!(stage.entry.useless(stage.at(), &stage.policy));
        located_flight(&stage.want(&owner()));
    }
}

#[test]
fn a_slow_catalog_is_waited_for_a_moment_and_then_what_is_known_serves() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    stage.policy.max_held_per_sandbox = 1;
    stage.now += SECOND;
    let act = stage.want(&owner());
    let (flight, ticket) = (located_flight(&act), parked(act));
    // One waits; those for whom there is no room are served rather than refused.
    assert!(matches!(stage.want(&owner()).answer, Answer::Go(_)));
    stage.now += SLOW;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    drop(ticket);
    stage.now += MINUTE;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none(), "not for ever");
    assert!(matches!(stage.want(&owner()).answer, Answer::Park(_)));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
}

#[test]
fn a_change_during_the_lookup_ahead_stops_the_known_place() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    stage.now += SECOND * 8 / 10;
    located_flight(&stage.want(&owner()));
    stage.on(Event::Changed);
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
    assert!(matches!(stage.want(&owner()).answer, Answer::Park(_)));
}

#[test]
fn an_outage_serves_what_is_known_without_waiting_until_it_is_too_old() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    stage.now += SECOND;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.route().generation, generation);
    stage.now += SECOND;
    // Asked again, and served meanwhile: also those who come while the lookup hangs.
    let act = stage.want(&owner());
    assert!(matches!(act.answer, Answer::Go(_)));
    let flight = located_flight(&act);
    assert!(matches!(stage.want(&owner()), Act { answer: Answer::Go(_), launch: None }));
    stage.now += MINUTE;
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
}

#[test]
fn nothing_known_and_an_outage_is_refused_for_a_moment_only() {
    let mut stage = Stage::new();
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
    stage.now += SECOND;
    located_flight(&stage.want(&owner()));
}

#[test]
fn a_change_makes_a_route_stale_at_once_and_a_lookups_answer_void() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    stage.on(Event::Changed);
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Changed);
    let act = stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    let again = located_flight(&act);
    assert_ne!(again, flight);
    stage.on(Event::Located { flight, outcome: Ok(Located::Gone(Reason::Killed)) });
    stage.on(Event::Located { flight: again, outcome: Ok(Located::Running(at("10.0.0.2", "b"))) });
    assert_eq!(stage.route().placement.node, Node::new("10.0.0.2"));
}

#[test]
fn a_change_during_a_wake_lets_its_outcome_land_stale() {
    let mut stage = Stage::knowing(asleep());
    let flight = wake_flight(&stage.want(&owner()));
    stage.on(Event::Changed);
    stage.resumed(flight, Ok(at("10.0.0.1", "a")));
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Ok(asleep()) });
    wake_flight(&stage.want(&owner()));
}

#[test]
fn a_key_that_changes_for_ever_does_not_hold_for_ever() {
    let mut stage = Stage::new();
    let act = stage.want(&owner());
    let (mut flight, ticket) = (located_flight(&act), parked(act));
    for _ in 0..MAX_VOIDED {
        stage.on(Event::Changed);
        let running = Ok(Located::Running(at("10.0.0.1", "a")));
        flight = located_flight(&stage.on(Event::Located { flight, outcome: running }));
    }
    stage.on(Event::Changed);
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    assert!(ticket.landed().is_some());
    stage.route();
    stage.now += Duration::from_millis(1);
    located_flight(&stage.want(&owner()));
}

#[test]
fn not_there_doubts_its_own_generation_only_and_only_once_in_a_while() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    assert!(
        stage
            .on(Event::NotThere { generation: Generation(generation.0 + 1), finding: Finding::Disowned })
            .launch
            .is_none()
    );
    let flight = located_flight(&stage.on(Event::NotThere { generation, finding: Finding::Disowned }));
    assert!(matches!(stage.want(&owner()).answer, Answer::Park(_)), "a doubted route serves nobody");
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    assert_eq!(stage.route().generation, generation);
    assert!(stage.on(Event::NotThere { generation, finding: Finding::Disowned }).launch.is_none(), "just confirmed");
    stage.now += SECOND;
    located_flight(&stage.on(Event::NotThere { generation, finding: Finding::Disowned }));
}

#[test]
fn a_place_found_empty_serves_nobody_also_while_it_was_being_asked_about() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    stage.now += SECOND * 8 / 10;
    let ahead = located_flight(&stage.want(&owner()));
    stage.on(Event::NotThere { generation, finding: Finding::Disowned });
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
    let waits = parked(stage.want(&owner()));
    // That lookup began before the report: its answer is as old as the place.
    let act = stage.on(Event::Located { flight: ahead, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    let flight = located_flight(&act);
    assert!(waits.landed().is_none());
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.2", "b"))) });
    assert!(waits.landed().is_some() && stage.route().generation > generation);
}

#[test]
fn a_refused_port_is_asked_about_once_and_keeps_nobody_from_the_others() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    let flight = located_flight(&stage.on(Event::NotThere { generation, finding: Finding::PortClosed }));
    assert_eq!(stage.route().generation, generation, "another port's request goes on");
    let (credentials, digest) = (owner(), OnceCell::new());
    let reporter = Want { doubts: true, ..wanting(&credentials, &digest, stage.now) };
    let waits = parked(stage.on(Event::Wanted(reporter)));
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(at("10.0.0.1", "a"))) });
    assert!(waits.landed().is_some());
    assert!(matches!(stage.on(Event::Wanted(reporter)).answer, Answer::Go(route) if route.generation == generation));
    assert!(stage.on(Event::NotThere { generation, finding: Finding::PortClosed }).launch.is_none(), "just confirmed");
}

#[test]
fn a_report_during_an_outage_does_not_stop_the_traffic() {
    let mut stage = Stage::knowing(Located::Running(at("10.0.0.1", "a")));
    let generation = stage.route().generation;
    stage.now += SECOND;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert!(stage.on(Event::NotThere { generation, finding: Finding::Disowned }).launch.is_none());
    assert_eq!(stage.route().generation, generation);
}

#[test]
fn whoever_waited_takes_what_was_learned_meanwhile_however_short_the_cache() {
    let mut stage = Stage::new();
    stage.policy.ttl = Duration::ZERO;
    stage.policy.negative_ttl = Duration::ZERO;
    let since = stage.now;
    let credentials = owner();
    let digest = OnceCell::new();
    let want = wanting(&credentials, &digest, since);
    let flight = located_flight(&stage.on(Event::Wanted(want)));
    stage.now += SECOND;
    stage.on(Event::Located { flight, outcome: Ok(Located::Gone(Reason::Unknown)) });
    stage.now += SECOND;
    assert!(matches!(stage.on(Event::Wanted(want)).answer, Answer::Refuse(Refusal::Gone(Reason::Unknown))));
    located_flight(&stage.want(&credentials));
}

#[test]
fn whoever_waited_for_the_lookup_keeps_its_place_before_the_wake() {
    let mut stage = Stage::new();
    stage.policy.max_held_per_sandbox = 2;
    let credentials = owner();
    let digest = OnceCell::new();
    let first = stage.want(&credentials);
    let flight = located_flight(&first);
    let second = stage.want(&credentials);
    stage.on(Event::Located { flight, outcome: Ok(Located::Asleep(Sleep { barred: None, access: None })) });
    // Both are about to ask again; a third one comes in between.
    assert_eq!(stage.refusal(&credentials), Refusal::TooManyHeld);
    let want = |since| Want { parked: true, ..wanting(&credentials, &digest, since) };

    let (since, mut parked) = (stage.now, Vec::new());
    for before in [first.answer, second.answer] {
        let after = stage.on(Event::Wanted(want(since)));
        assert!(matches!(after.answer, Answer::Park(_)), "{after:?}");
        parked.push((before, after));
    }
    assert_eq!((stage.refusal(&credentials), stage.entry.held()), (Refusal::TooManyHeld, 2));
}

fn wanting<'a>(credentials: &'a Credentials, digest: &'a OnceCell<CredentialDigest>, since: Instant) -> Want<'a> {
    let leave = Leave::GIVEN;
    Want { credentials, digest, since, room: true, parked: false, may_wake: true, leave, doubts: false }
}
