//! The state machine of one sandbox, pure: `Entry::on(event, step)` decides, nobody waits, nothing is
//! asked. `Table::apply` is its only caller (by way of the `history`, which writes down what came of it)
//! and holds the shard's lock meanwhile, so that a waiter subscribes to the flight it waits for in the
//! same moment in which the flight is decided on.
//!
//! A *flight* is a question to the control plane that is under way; it runs detached and comes back
//! as an event. What it tells counts only while it is the flight that the entry waits for.
//!
//! What is known carries the moment it was learned. A request is content with whatever was learned
//! since it began to ask, however short the cache's limits: nobody asks in circles.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

pub(crate) use self::event::{Act, Answer, At, Doubt, Event, Finding, FlightId, Launch, Policy, Refusal, Step, Want};
pub(crate) use self::{
    known::{Fresh, Known},
    locating::Locating,
    phase::{Glance, Phase},
    resuming::{Asleep, Resuming},
};
use super::{
    bell::{Ending, Place},
    denials::Denials,
    lease::Term,
    ports::{Located, WakeError},
};
use crate::types::{Generation, Placement, Reason, Route, Woken};

mod event;
mod known;
mod locating;
mod phase;
mod resuming;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

/// One sandbox.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) state: State,
    denials: Denials,
    /// Whoever is held for it has a copy.
    places: Place,
}

#[derive(Debug, Default)]
pub(crate) enum State {
    #[default]
    Unknown,
    Locating(Locating),
    Running(Known),
    Asleep(Asleep),
    Resuming(Resuming),
    /// The catalog failed and nothing is known.
    Refusing(Fresh),
    Gone(Reason, Fresh),
}

/// Void answers after which the next one is taken: a key that changes faster than the catalog answers
/// must not hold its requests for ever.
const MAX_VOIDED: u8 = 3;

impl Entry {
    /// Takes the event in and says what is to be done.
    pub(crate) fn on(&mut self, event: Event<'_>, step: Step, policy: &Policy) -> Act {
        match event {
            Event::Wanted(want) => self.wanted(want, step, policy),
            Event::Located { flight, outcome } => self.located(flight, outcome, step, policy),
            Event::Resumed { flight, outcome, took } => {
                self.resumed(flight, outcome.map_err(Some), took, step, policy);
                Act::NONE
            }
            Event::NotAsked { flight } => {
                self.resumed(flight, Err(None), Duration::ZERO, step, policy);
                Act::NONE
            }
            Event::Lost { flight } => {
                let lost = WakeError::Unavailable("the call was lost".into());
                self.resumed(flight, Err(Some(lost)), Duration::ZERO, step, policy);
                self.located(flight, Err(()), step, policy)
            }
            Event::NotThere { generation, finding } => self.not_there(generation, finding.doubt(), step, policy),
            Event::Changed | Event::Forget => {
                self.changed();
                Act::NONE
            }
        }
    }

    /// The place, if it may be used without asking: the hot path, which changes nothing.
    pub(crate) fn route(&self, at: At, policy: &Policy) -> Option<&Arc<Route>> {
        match &self.state {
            State::Running(known) => {
                known.fresh.filter(|fresh| fresh.is_young(at, policy.ttl_in(fresh.term))).map(|_| &known.route)
            }
            State::Locating(locating) => locating.serving(at, policy),
            _ => None,
        }
    }

    /// How many requests wait.
    pub(crate) fn held(&self) -> usize {
        self.places.taken()
    }

    /// Whether nothing is under way for it.
    pub(crate) fn in_peace(&self) -> bool {
        !matches!(self.state, State::Locating(_) | State::Resuming(_))
    }

    /// Whether it names a place.
    pub(crate) fn is_route(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Whether it holds nothing that could still be used.
    pub(crate) fn useless(&self, at: At, policy: &Policy) -> bool {
        match &self.state {
            State::Unknown => true,
            State::Asleep(Asleep { fresh, .. }) | State::Refusing(fresh) | State::Gone(_, fresh) => {
                !fresh.lasts(at, policy.negative_ttl)
            }
            State::Running(_) | State::Locating(_) | State::Resuming(_) => false,
        }
    }

    fn wanted(&mut self, want: Want<'_>, step: Step, policy: &Policy) -> Act {
        let mut act = self.decide(want, step, policy);
        if let Answer::Park(ticket) = &mut act.answer
            && !want.parked
        {
            ticket.place = Some(self.places.clone());
        }
        act
    }

    fn decide(&mut self, want: Want<'_>, step: Step, policy: &Policy) -> Act {
        let (now, at) = (step.now, step.at());
        let room = want.room && (want.parked || self.held() < policy.max_held_per_sandbox);
        if !matches!(self.state, State::Running(_) | State::Locating(_))
            && let Some(refusal) = self.denials.get(want.digest(), want.since, at, policy)
        {
            return Act::refuse(refusal);
        }
        let serves = |fresh: &Fresh| fresh.serves(want.since, at, policy.negative_ttl);
        match &mut self.state {
            State::Running(known) if known.serves(want.since, at, policy) => {
                let answer = Answer::Go(known.route.clone());
                if !known.wanes(at, policy) {
                    return Act::answer(answer);
                }
                let (locating, launch) = Locating::take_off(Some(known.clone()), None, step);
                self.state = State::Locating(locating);
                Act { answer, launch: Some(launch) }
            }
            State::Gone(reason, fresh) if serves(fresh) => Act::refuse(Refusal::Gone(*reason)),
            State::Refusing(fresh) if serves(fresh) => Act::refuse(Refusal::Unavailable),
            State::Asleep(asleep) if serves(&asleep.fresh) => {
                if let Err(refusal) = asleep.admits(want) {
                    return Act::refuse(refusal);
                }
                if !room {
                    return Act::refuse(Refusal::TooManyHeld);
                }
                if let Err(refusal) = want.leave.ask() {
                    return Act::refuse(refusal);
                }
                let mut resuming = Resuming::new(Asleep { sleep: asleep.sleep.take(), fresh: asleep.fresh });
                let act = resuming.take_off(want, step);
                self.state = State::Resuming(resuming);
                act
            }
            State::Resuming(resuming) => resuming.wanted(want, room, step),
            State::Locating(locating) => match locating.serving(at, policy) {
                Some(route) if !(want.doubts && locating.doubt.is_some()) => Act::answer(Answer::Go(route.clone())),
                _ if room => Act::answer(Answer::Park(locating.ticket(now))),
                // Rather from memory than not at all.
                _ => match locating.known.as_ref().filter(|known| known.outlives_slowness(at, policy)) {
                    Some(known) if locating.doubt.is_none() => Act::answer(Answer::Go(known.route.clone())),
                    _ => Act::refuse(Refusal::TooManyHeld),
                },
            },
            // Nothing known, or no longer.
            _ => {
                let known = match std::mem::take(&mut self.state) {
                    State::Running(known) => Some(known),
                    _ => None,
                };
                let serving =
                    known.as_ref().filter(|known| known.outlives_outage(at, policy)).map(|known| known.route.clone());
                if serving.is_none() && !room {
                    // Nobody is asked on behalf of a request that is refused.
                    if let Some(known) = known {
                        self.state = State::Running(known);
                    }
                    return Act::refuse(Refusal::TooManyHeld);
                }
                let (locating, launch) = Locating::take_off(known, None, step);
                let answer = match serving {
                    Some(route) => Answer::Go(route),
                    None => Answer::Park(locating.ticket(now)),
                };
                self.state = State::Locating(locating);
                Act { answer, launch: Some(launch) }
            }
        }
    }

    fn located(&mut self, flight: FlightId, outcome: Result<Located, ()>, step: Step, policy: &Policy) -> Act {
        let Step { now, serial, .. } = step;
        let State::Locating(locating) = &mut self.state else { return Act::NONE };
        if locating.flight != flight {
            return Act::NONE;
        }
        // The term that it was asked in is over: a change may have been missed since.
        let missed = !locating.term.holds_in(step.term);
        let void = locating.changed || locating.overtaken || missed;
        if void && locating.voided < MAX_VOIDED && outcome.is_ok() {
            (locating.flight, locating.term) = (FlightId(serial), step.term);
            (locating.changed, locating.overtaken) = (false, false);
            locating.voided += 1;
            return Act { answer: Answer::None, launch: Some(Launch::Locate { flight: locating.flight }) };
        }
        let State::Locating(Locating { bell, known, doubt, changed, term, .. }) = std::mem::take(&mut self.state)
        else {
            return Act::NONE;
        };
        // Taken although something changed: good enough for those who wait, for nobody after them.
        let fresh = |ttl: Duration| Fresh::new(now, if changed || missed { Duration::ZERO } else { ttl }, term);
        let aging = |ttl: Duration| Fresh::new(now, if changed { Duration::ZERO } else { ttl }, Term::NONE);
        self.state = match outcome {
            Ok(Located::Running(placement)) => {
                let ttl = lasting(policy.ttl_in(term), &placement, now);
                State::Running(Known::confirmed(placement, known, doubt.is_some(), serial, fresh(ttl)))
            }
            Ok(Located::Asleep(sleep)) => {
                State::Asleep(Asleep { sleep: Some(sleep), fresh: fresh(policy.negative_ttl) })
            }
            Ok(Located::Absent) => State::Asleep(Asleep { sleep: None, fresh: fresh(policy.negative_ttl) }),
            Ok(Located::Gone(reason)) => State::Gone(reason, fresh(policy.negative_ttl)),
            Err(()) => match known {
                // A change that was pushed is the last thing heard: nothing serves against it.
                Some(known) if !changed && known.outlives_slowness(step.at(), policy) => State::Running(Known {
                    confirmed: known.held(step.at()),
                    fresh: Some(aging(policy.ttl.min(policy.outage_ttl()))),
                    failing: true,
                    doubted: if doubt.is_some() { Some(now) } else { known.doubted },
                    ..known
                }),
                _ => State::Refusing(aging(policy.outage_ttl())),
            },
        };
        bell.ring(Ending::Told);
        Act::NONE
    }

    /// A wake ended; `Err(None)`: before anybody was asked.
    fn resumed(
        &mut self,
        flight: FlightId,
        outcome: Result<Placement, Option<WakeError>>,
        took: Duration,
        step: Step,
        policy: &Policy,
    ) {
        let Step { now, serial, .. } = step;
        let State::Resuming(resuming) = &mut self.state else { return };
        let Some(at) = resuming.flights.iter().position(|wake| wake.flight == flight) else { return };
        let term = resuming.flights[at].term;
        let changed = resuming.changed || !term.holds_in(step.term);
        let (down, ending);
        let landed = match outcome {
            Ok(mut placement) => {
                let woken = Woken { at: now, took };
                if placement.access.is_none() {
                    placement.access = resuming.asleep.sleep.take().and_then(|sleep| sleep.access);
                }
                let route = Route { placement, generation: Generation(serial), woken: Some(woken) };
                resuming.ring_all(Ending::Woken);
                let ttl = lasting(policy.ttl_in(term), &route.placement, now);
                self.state = State::Running(Known {
                    route: Arc::new(route),
                    fresh: (!changed).then(|| Fresh::new(now, ttl, term)),
                    confirmed: now,
                    failing: false,
                    doubted: None,
                });
                return;
            }
            Err(Some(WakeError::Gone(reason))) => {
                let ttl = if changed { Duration::ZERO } else { policy.negative_ttl };
                resuming.ring_all(Ending::Told);
                self.state = State::Gone(reason, Fresh::new(now, ttl, term));
                return;
            }
            Err(error) => {
                let landed = resuming.flights.swap_remove(at);
                down = matches!(error, Some(WakeError::Unavailable(_)));
                ending = match error {
                    Some(WakeError::Transitioning) => Ending::Transitioning,
                    _ => Ending::Told,
                };
                let (refusal, ttl) = match error {
                    Some(WakeError::Denied(denial)) => (Some(Refusal::Denied(denial)), policy.negative_ttl),
                    Some(WakeError::Exhausted(message)) => (Some(Refusal::Exhausted(message)), policy.negative_ttl),
                    Some(WakeError::Unavailable(_)) => (Some(Refusal::Unavailable), policy.outage_ttl()),
                    // Its waiters ask again, each inside its own time.
                    Some(WakeError::Transitioning | WakeError::Gone(_)) | None => (None, Duration::ZERO),
                };
                if let Some(refusal) = refusal {
                    let ttl = if changed { Duration::ZERO } else { ttl };
                    self.denials.remember(landed.digest, refusal, Fresh::new(now, ttl, term), policy);
                }
                landed
            }
        };
        landed.bell.ring(ending);
        resuming.next_any().ring(Ending::Told);
        if resuming.flights.is_empty()
            && let State::Resuming(Resuming { asleep, changed, .. }) = std::mem::take(&mut self.state)
        {
            self.state = match (down, changed) {
                (true, _) => State::Refusing(Fresh::new(now, policy.outage_ttl(), Term::NONE)),
                (false, true) => State::Unknown,
                (false, false) => State::Asleep(asleep),
            };
        }
    }

    fn not_there(&mut self, generation: Generation, doubt: Doubt, step: Step, policy: &Policy) -> Act {
        let (State::Running(known) | State::Locating(Locating { known: Some(known), .. })) = &self.state else {
            return Act::NONE;
        };
        let just_confirmed = known.doubted.is_some_and(|at| step.now < at + policy.negative_ttl);
        // While the catalog fails there is nothing better to be learned, and others are served.
        if known.route.generation != generation || just_confirmed || known.failing {
            return Act::NONE;
        }
        let known = known.clone();
        if let State::Locating(locating) = &mut self.state {
            // Doubt about the place outweighs doubt about a port.
            locating.doubt = locating.doubt.max(Some(doubt));
            locating.overtaken |= doubt == Doubt::Place;
            return Act::NONE;
        }
        let (locating, launch) = Locating::take_off(Some(known), Some(doubt), step);
        self.state = State::Locating(locating);
        Act { answer: Answer::None, launch: Some(launch) }
    }

    fn changed(&mut self) {
        self.denials.clear();
        match &mut self.state {
            State::Unknown => {}
            State::Locating(locating) => {
                locating.changed = true;
                if let Some(known) = &mut locating.known {
                    known.fresh = None;
                }
            }
            State::Resuming(resuming) => resuming.changed = true,
            State::Running(known) => known.fresh = None,
            State::Asleep(_) | State::Refusing(_) | State::Gone(..) => self.state = State::Unknown,
        }
    }
}

/// How long the place may be used that was told at `now`: the catalog may have said when it ends.
fn lasting(ttl: Duration, placement: &Placement, now: Instant) -> Duration {
    placement.until.map_or(ttl, |until| ttl.min(until.saturating_duration_since(now)))
}
