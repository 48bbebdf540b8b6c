//! What is known while the catalog tells of changes, and what becomes of it when it no longer does.

use super::*;

/// An entry whose first lookup said this in the first term.
fn watched(located: Located) -> Stage {
    let mut stage = Stage::new();
    stage.term = Term::of(1);
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Ok(located) });
    stage
}

fn running() -> Located {
    Located::Running(at("10.0.0.1", "a"))
}

#[test]
fn what_is_learned_in_a_term_lasts_longer_and_goes_with_the_term() {
    let mut stage = watched(running());
    stage.now += SECOND * 30;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some(), "far beyond the time without pushes");
    for over in [Term::NONE, Term::of(2)] {
        stage.term = over;
        assert!(stage.entry.route(stage.at(), &stage.policy).is_none(), "{over:?}");
    }
    located_flight(&stage.want(&owner()));
    let mut stage = watched(running());
    stage.now += stage.policy.ttl_with_push;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none(), "not for ever");
}

#[test]
fn what_is_learned_outside_of_terms_ages_as_ever() {
    let mut stage = Stage::knowing(running());
    stage.term = Term::of(1);
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    stage.now += SECOND;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
}

#[test]
fn a_place_is_used_no_longer_than_the_catalog_said() {
    let mut stage = Stage::new();
    stage.term = Term::of(1);
    let flight = located_flight(&stage.want(&owner()));
    let placement = Placement { until: Some(stage.now + SECOND), ..at("10.0.0.1", "a") };
    stage.on(Event::Located { flight, outcome: Ok(Located::Running(placement)) });
    stage.now += SECOND;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
    assert!(matches!(stage.want(&owner()).answer, Answer::Park(_)));
}

#[test]
fn an_answer_from_a_term_that_is_over_is_asked_for_again() {
    let mut stage = Stage::new();
    stage.term = Term::of(1);
    let flight = located_flight(&stage.want(&owner()));
    stage.term = Term::of(2);
    let again = located_flight(&stage.on(Event::Located { flight, outcome: Ok(running()) }));
    stage.on(Event::Located { flight: again, outcome: Ok(Located::Running(at("10.0.0.2", "b"))) });
    assert_eq!(stage.route().placement.node, Node::new("10.0.0.2"));
    // One that was asked for outside of all terms may be as old as it took, as ever.
    stage = Stage::new();
    let flight = located_flight(&stage.want(&owner()));
    stage.term = Term::of(1);
    assert!(stage.on(Event::Located { flight, outcome: Ok(running()) }).launch.is_none());
}

#[test]
fn a_catalog_that_is_gone_takes_nothing_with_it_but_its_silence() {
    let mut stage = watched(running());
    stage.now += SECOND;
    stage.term = Term::NONE;
    let act = stage.want(&owner());
    let flight = located_flight(&act);
    parked(act);
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.route().placement.node, Node::new("10.0.0.1"), "known routes outlive an outage");
    // But not against a change that was heard of.
    let mut stage = watched(running());
    stage.on(Event::Changed);
    stage.term = Term::NONE;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
}

#[test]
fn an_outage_is_outlived_from_its_beginning_on_however_long_ago_the_place_was_told() {
    let mut stage = watched(running());
    // Told a while ago, and held to be so until a moment ago.
    stage.now += SECOND * 40;
    assert!(stage.entry.route(stage.at(), &stage.policy).is_some());
    let former = Former { term: stage.term, until: stage.now };
    (stage.term, stage.former) = (Term::NONE, Some(former));
    stage.now += SECOND;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.route().placement.node, Node::new("10.0.0.1"));
    stage.now = former.until + SECOND * 59;
    let act = stage.want(&owner());
    assert!(matches!(act.answer, Answer::Go(_)), "{act:?}");
    let flight = located_flight(&act);
    stage.on(Event::Located { flight, outcome: Err(()) });
    stage.now = former.until + MINUTE;
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable, "and no longer than from there");
    // Of an earlier term it is known that it is over, and not since when.
    let mut stage = watched(running());
    stage.now += MINUTE;
    (stage.term, stage.former) = (Term::NONE, Some(Former { term: Term::of(7), until: stage.now }));
    let flight = located_flight(&stage.want(&owner()));
    stage.on(Event::Located { flight, outcome: Err(()) });
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
}

#[test]
fn refusals_go_with_the_term_too() {
    let mut stage = watched(Located::Gone(Reason::Unknown));
    assert_eq!(stage.refusal(&owner()), Refusal::Gone(Reason::Unknown));
    stage.now += SECOND / 2;
    stage.term = Term::of(2);
    located_flight(&stage.want(&owner()));
}

#[test]
fn a_wake_whose_term_is_over_frees_its_waiters_and_serves_nobody_unasked() {
    let mut stage = watched(asleep());
    let act = stage.want(&owner());
    let (flight, ticket) = (wake_flight(&act), parked(act));
    stage.term = Term::of(2);
    stage.resumed(flight, Ok(at("10.0.0.1", "a")));
    assert_eq!(ticket.landed(), Some(Ending::Woken));
    assert!(stage.entry.route(stage.at(), &stage.policy).is_none());
    located_flight(&stage.want(&owner()));
}
