//! The rows of the state table that concern waking.

use super::{
    super::resuming::{MAX_FLIGHTS, OVERDUE},
    *,
};

#[test]
fn a_sleeper_that_may_not_be_woken_is_refused_without_a_call_and_asked_for_later() {
    let sleep = Sleep { barred: Some(Reason::AutoResumeOff), access: None };
    let mut stage = Stage::knowing(Located::Asleep(sleep));
    assert_eq!(stage.refusal(&owner()), Refusal::Gone(Reason::AutoResumeOff));
    stage.now += SECOND;
    located_flight(&stage.want(&owner()));
}

#[test]
fn a_wrong_token_neither_wakes_nor_rides_on_a_wake_where_the_locks_are_known() {
    let access = Access { envd_token: Some(Secret::new("right")), ..Access::default() };
    let mut stage = Stage::knowing(Located::Asleep(Sleep { barred: None, access: Some(access) }));
    assert_eq!(stage.refusal(&holder_of("wrong")), Refusal::Denied(Denial::AccessTokenInvalid));
    let flight = wake_flight(&stage.want(&owner()));
    assert_eq!(stage.refusal(&holder_of("wrong")), Refusal::Denied(Denial::AccessTokenInvalid));
    stage.resumed(flight, Ok(at("10.0.0.1", "a")));
    let access = stage.route().placement.access.clone().expect("the locks outlive the wake");
    assert!(access.check_wake(&owner()).is_ok());
}

#[test]
fn a_denial_concerns_its_own_credentials_and_is_remembered() {
    let mut stage = Stage::knowing(asleep());
    let wrong = stage.want(&holder_of("wrong"));
    let (wrong_flight, wrong_ticket) = (wake_flight(&wrong), parked(wrong));
    let right = stage.want(&owner());
    let (right_flight, right_ticket) = (wake_flight(&right), parked(right));
    stage.resumed(wrong_flight, Err(WakeError::Denied(Denial::Denied)));
    assert_eq!((wrong_ticket.landed(), right_ticket.landed()), (Some(Ending::Told), None));
    assert_eq!(stage.refusal(&holder_of("wrong")), Refusal::Denied(Denial::Denied));
    // But no longer than it may be now.
    let negative_ttl = std::mem::take(&mut stage.policy.negative_ttl);
    stage.now += negative_ttl / 2;
    parked(stage.want(&holder_of("wrong")));
    stage.resumed(right_flight, Ok(at("10.0.0.1", "a")));
    assert_eq!(right_ticket.landed(), Some(Ending::Woken));
}

#[test]
fn the_ninth_caller_waits_for_a_flight_but_never_behind_overdue_ones() {
    let mut stage = Stage::knowing(asleep());
    let eight: Vec<_> = (0..MAX_FLIGHTS).map(|n| stage.want(&holder_of(&format!("wrong{n}")))).collect();
    let ninth = stage.want(&owner());
    assert!(ninth.launch.is_none());
    let ninth = parked(ninth);
    stage.resumed(wake_flight(&eight[3]), Err(WakeError::Denied(Denial::Denied)));
    assert!(ninth.landed().is_some(), "a landing makes room");
    let mut stage = Stage::knowing(asleep());
    let _eight: Vec<_> = (0..MAX_FLIGHTS).map(|n| stage.want(&holder_of(&format!("wrong{n}")))).collect();
    stage.now += OVERDUE;
    wake_flight(&stage.want(&owner()));
}

#[test]
fn every_ending_of_a_wake_is_told_and_remembered_as_long_as_it_holds() {
    let killed = || Err(WakeError::Gone(Reason::Killed));
    let exhausted = || Err(WakeError::Exhausted("your limit".into()));
    let down = || Err(WakeError::Unavailable("down".into()));
    let cases: [(Result<Placement, WakeError>, Refusal); 3] = [
        (killed(), Refusal::Gone(Reason::Killed)),
        (exhausted(), Refusal::Exhausted("your limit".into())),
        (down(), Refusal::Unavailable),
    ];
    for (outcome, refusal) in cases {
        let mut stage = Stage::knowing(asleep());
        let act = stage.want(&owner());
        let (flight, ticket) = (wake_flight(&act), parked(act));
        stage.resumed(flight, outcome);
        assert_eq!(ticket.landed(), Some(Ending::Told));
        assert_eq!(stage.refusal(&owner()), refusal);
        stage.now += SECOND;
        located_flight(&stage.want(&owner()));
    }
}

#[test]
fn a_transition_is_no_fact_to_remember() {
    let mut stage = Stage::knowing(asleep());
    let act = stage.want(&owner());
    let (flight, ticket) = (wake_flight(&act), parked(act));
    stage.resumed(flight, Err(WakeError::Transitioning));
    assert_eq!(ticket.landed(), Some(Ending::Transitioning));
    wake_flight(&stage.want(&owner()));
}

#[test]
fn a_lost_flight_is_an_outage_not_a_silence() {
    let mut stage = Stage::new();
    let act = stage.want(&owner());
    let (flight, ticket) = (located_flight(&act), parked(act));
    stage.on(Event::Lost { flight });
    assert!(ticket.landed().is_some());
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
    let mut stage = Stage::knowing(asleep());
    let act = stage.want(&owner());
    let (flight, ticket) = (wake_flight(&act), parked(act));
    stage.on(Event::Lost { flight });
    assert!(ticket.landed().is_some());
    assert_eq!(stage.refusal(&owner()), Refusal::Unavailable);
}
