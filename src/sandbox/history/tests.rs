//! What is written down of a sandbox's life, and what is not.

use std::cell::OnceCell;

use tokio::time::Instant;

use super::*;
use crate::{
    sandbox::{
        entry::{Finding, FlightId, Want},
        leave::Leave,
        ports::{Located, Sleep, WakeError},
    },
    types::{Credentials, Denial, Placement, Port, Reason, Secret},
};

const SECOND: Duration = Duration::from_secs(1);

/// One sandbox and the time, driven by hand.
struct Life {
    entry: Entry,
    history: History,
    policy: Policy,
    born: Instant,
    now: Instant,
    serial: u64,
}

impl Life {
    fn new() -> Self {
        let policy = Policy {
            ttl: SECOND,
            ttl_with_push: 60 * SECOND,
            stale_if_error: SECOND,
            negative_ttl: SECOND,
            max_held_per_sandbox: 100,
        };
        let now = Instant::now();
        Self { entry: Entry::default(), history: History::default(), policy, born: now, now, serial: 0 }
    }

    fn on(&mut self, event: Event<'_>) -> Act {
        self.serial += 1;
        let at = u64::try_from((self.now - self.born).as_millis()).expect("a short life");
        let step = Step { now: self.now, serial: self.serial, term: crate::sandbox::lease::Term::NONE, former: None };
        self.history.apply(&mut self.entry, event, step, &self.policy, at)
    }

    fn want_room(&mut self, port: Port, room: bool) -> Act {
        self.want_with(&Credentials { port, traffic_token: None, access_token: None }, room)
    }

    fn want_with(&mut self, credentials: &Credentials, room: bool) -> Act {
        let (digest, since) = (OnceCell::new(), self.now);
        let (parked, may_wake, leave, doubts) = (false, true, Leave::GIVEN, false);
        let want = Want { credentials, digest: &digest, since, room, parked, may_wake, leave, doubts };
        self.on(Event::Wanted(want))
    }

    fn want(&mut self) -> Act {
        self.want_room(Port::ENVD, true)
    }

    /// A request, and the lookup or wake that it starts.
    fn launch(&mut self) -> FlightId {
        flight(&self.want())
    }

    fn located(&mut self, flight: FlightId, outcome: Result<Located, ()>) -> Act {
        self.on(Event::Located { flight, outcome })
    }

    fn resumed(&mut self, flight: FlightId, outcome: Result<Placement, WakeError>) {
        self.on(Event::Resumed { flight, outcome, took: SECOND });
    }

    /// Asked about, and running there.
    fn found_at(&mut self, node: &str) {
        let flight = self.launch();
        self.located(flight, Ok(Located::Running(placement(node))));
    }

    /// Each record as `what cause before>after`, and how often.
    fn told(&self) -> Vec<(String, u32)> {
        let line = |record: &Record| {
            let Record { what, cause, before, after, .. } = record;
            let words = [what.as_str(), cause.as_str()].join(" ");
            (format!("{words} {}>{}", before.as_str(), after.as_str()), record.times)
        };
        self.history.records().iter().map(line).collect()
    }

    fn tells(&self, lines: &[(&str, u32)]) {
        let told = self.told();
        assert_eq!(told.iter().map(|(line, times)| (line.as_str(), *times)).collect::<Vec<_>>(), lines);
    }
}

fn flight(act: &Act) -> FlightId {
    match &act.launch {
        Some(Launch::Locate { flight } | Launch::Resume { flight, .. }) => *flight,
        None => panic!("nothing was started: {act:?}"),
    }
}

fn placement(node: &str) -> Placement {
    Placement { node: Node::new(node), execution: None, access: None, until: None }
}

fn asleep() -> Located {
    Located::Asleep(Sleep { barred: None, access: None })
}

#[test]
fn a_wake_is_told_from_the_first_request_on() {
    let mut life = Life::new();
    let lookup = life.launch();
    life.located(lookup, Ok(asleep()));
    let wake = flight(&life.want_room(Port::new(8000).expect("a port"), true));
    life.resumed(wake, Err(WakeError::Transitioning));
    life.now += SECOND / 2;
    let wake = life.launch();
    life.resumed(wake, Ok(placement("10.0.0.7")));
    life.tells(&[
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended asleep locating>asleep", 1),
        ("wake_started user_port asleep>resuming", 1),
        ("wake_ended transitioning resuming>asleep", 1),
        ("wake_started envd asleep>resuming", 1),
        ("wake_ended ok resuming>running", 1),
    ]);
    let nodes: Vec<_> = life.history.records().iter().map(|record| record.node.clone()).collect();
    assert_eq!(nodes.last(), Some(&Node::new("10.0.0.7")));
    assert!(nodes[..5].iter().all(Option::is_none));
    let last = life.history.last_wake().expect("a wake");
    assert_eq!((last.cause, last.took, last.at), (Cause::Ok, SECOND, 500));
}

#[test]
fn requests_that_are_served_are_not_written_down() {
    let mut life = Life::new();
    life.found_at("10.0.0.1");
    let before = (life.told(), life.history.records.capacity());
    for _ in 0..1000 {
        assert!(matches!(life.want().answer, Answer::Go(_)));
    }
    assert_eq!((life.told(), life.history.records.capacity()), before);
    assert_eq!(before.1, 2, "room for what an idle sandbox has, and no more");
}

#[test]
fn routine_does_not_push_out_what_matters() {
    let mut life = Life::new();
    life.found_at("10.0.0.1");
    life.on(Event::Forget);
    for round in 0..1000 {
        // Ahead of its end or after it, as requests happen to come.
        life.now += if round % 3 == 0 { SECOND * 2 } else { SECOND * 9 / 10 };
        life.found_at("10.0.0.1");
    }
    life.tells(&[
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended running locating>running", 1),
        ("forgotten operator running>running_stale", 1),
        ("refreshed running running_stale>running", 1),
        ("refreshed running running>running", 999),
    ]);
    let last = life.history.records().last().expect("a record");
    assert_eq!((last.first, last.last), (2900, 1_267_400));
    // A look ahead that is under way is told as such.
    life.now += SECOND * 9 / 10;
    let lookup = life.launch();
    assert_eq!(life.told().last(), Some(&("lookup_started ahead running>locating".into(), 1)));
    // Another node is no routine.
    life.located(lookup, Ok(Located::Running(placement("10.0.0.2"))));
    assert_eq!(life.told().last(), Some(&("lookup_ended running locating>running".into(), 1)));
}

#[test]
fn a_round_that_comes_again_and_again_is_told_once() {
    let mut life = Life::new();
    for times in 1..=300 {
        let lookup = life.launch();
        life.located(lookup, Ok(Located::Gone(Reason::Killed)));
        for _ in 0..times {
            life.want();
        }
        life.now += SECOND;
    }
    life.tells(&[
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended killed locating>gone", 299),
        ("refused killed gone>gone", 44_850),
        ("lookup_started wanted gone>locating", 299),
        // The next question closes the round that this begins.
        ("lookup_ended killed locating>gone", 1),
        ("refused killed gone>gone", 300),
    ]);
    // A wrong token, once a second.
    for _ in 0..300 {
        let lookup = life.launch();
        life.located(lookup, Ok(asleep()));
        let wake = life.launch();
        life.resumed(wake, Err(WakeError::Denied(Denial::Denied)));
        life.want();
        life.now += SECOND;
    }
    assert_eq!(life.told()[0].0, "lookup_started wanted unknown>locating", "what it began with is still there");
    let denied = life.told().into_iter().filter(|(line, _)| line.starts_with("refused denied"));
    assert_eq!(denied.map(|(_, times)| times).sum::<u32>(), 300);
}

#[test]
fn a_round_of_two_is_folded_as_soon_as_it_is_over() {
    let mut life = Life::new();
    life.found_at("10.0.0.1");
    for _ in 0..5 {
        life.now += 2 * SECOND;
        let lookup = life.launch();
        life.located(lookup, Err(()));
    }
    life.tells(&[
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended running locating>running", 1),
        ("lookup_started wanted running>locating", 1),
        ("lookup_ended failed locating>refusing", 4),
        ("lookup_started wanted refusing>locating", 4),
        // The next question closes the round that this begins.
        ("lookup_ended failed locating>refusing", 1),
    ]);
}

#[test]
fn a_wake_that_ends_while_others_go_on_is_told_and_stale_news_is_not() {
    let mut life = Life::new();
    let lookup = life.launch();
    life.located(lookup, Ok(asleep()));
    let wake = life.launch();
    let token = Some(Secret::new("another"));
    let other = Credentials { port: Port::ENVD, traffic_token: None, access_token: token };
    let other = flight(&life.want_with(&other, true));
    life.resumed(other, Err(WakeError::Denied(Denial::Denied)));
    life.resumed(other, Ok(placement("10.0.0.1")));
    life.located(lookup, Ok(asleep()));
    life.resumed(wake, Ok(placement("10.0.0.2")));
    let told = life.told();
    let told: Vec<_> = told.iter().map(|(line, _)| line.as_str()).skip(2).collect();
    assert_eq!(
        told,
        [
            "wake_started envd asleep>resuming",
            "wake_started envd resuming>resuming",
            "wake_ended denied resuming>resuming",
            "wake_ended ok resuming>running",
        ]
    );
}

#[test]
fn reports_are_told_with_what_was_found() {
    let mut life = Life::new();
    life.found_at("10.0.0.1");
    let generation = life.entry.known().expect("a place").route.generation;
    let found = |life: &mut Life, finding| life.on(Event::NotThere { generation, finding });
    let lookup = flight(&found(&mut life, Finding::Disowned));
    found(&mut life, Finding::Unreachable);
    found(&mut life, Finding::NoNode);
    // The report came after the question: it is asked again.
    let act = life.located(lookup, Ok(Located::Running(placement("10.0.0.1"))));
    life.located(flight(&act), Ok(Located::Running(placement("10.0.0.1"))));
    found(&mut life, Finding::PortClosed);
    life.tells(&[
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended running locating>running", 1),
        ("not_there disowned running>locating", 1),
        ("not_there unreachable locating>locating", 1),
        ("not_there no_node locating>locating", 1),
        ("lookup_ended overtaken locating>locating", 1),
        ("lookup_ended running locating>running", 1),
        ("not_there port_closed running>running", 1),
    ]);
    // News of a former life is none.
    let stale = Event::NotThere { generation: Generation(generation.0 + 1), finding: Finding::Disowned };
    life.on(stale);
    assert_eq!(life.told().len(), 8);
}

#[test]
fn failures_and_refusals_are_told() {
    let mut life = Life::new();
    life.want_room(Port::ENVD, false);
    let lookup = life.launch();
    life.located(lookup, Err(()));
    life.want();
    life.now += SECOND;
    let lookup = life.launch();
    life.on(Event::Lost { flight: lookup });
    life.now += SECOND;
    let lookup = life.launch();
    life.located(lookup, Ok(Located::Absent));
    let wake = life.launch();
    life.on(Event::Lost { flight: wake });
    life.tells(&[
        ("refused too_many_held unknown>unknown", 1),
        ("lookup_started wanted unknown>locating", 1),
        ("lookup_ended failed locating>refusing", 1),
        ("refused unavailable refusing>refusing", 1),
        ("lookup_started wanted refusing>locating", 1),
        ("lookup_ended lost locating>refusing", 1),
        ("lookup_started wanted refusing>locating", 1),
        ("lookup_ended absent locating>asleep", 1),
        ("wake_started envd asleep>resuming", 1),
        ("wake_ended lost resuming>refusing", 1),
    ]);
}

#[test]
fn the_last_sixteen_are_kept() {
    let mut life = Life::new();
    for n in 0..40 {
        life.found_at(&format!("10.0.0.{n}"));
        life.now += SECOND;
    }
    let records = life.history.records();
    assert_eq!((records.len(), life.history.records.capacity()), (16, 16));
    let nodes: Vec<_> = records.iter().filter_map(|record| record.node.clone()).collect();
    assert_eq!(nodes, (32..40).filter_map(|n| Node::new(&format!("10.0.0.{n}"))).collect::<Vec<_>>());
}

/// There may be a million sandboxes: what one costs is not to grow unseen.
#[test]
fn a_record_and_a_history_are_as_small_as_they_are_said_to_be() {
    assert_eq!((size_of::<Record>(), size_of::<History>()), (40, 56));
}
