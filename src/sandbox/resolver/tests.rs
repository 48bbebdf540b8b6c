//! Waiting and flights under the paused clock, against a control plane that plays a script and wants it
//! used up.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use super::*;
use crate::{
    sandbox::ports::{CatalogError, Located, Sleep, Wake, WakeError},
    types::{Denial, Node, Placement, Port, Reason},
};

mod leave;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOLD: Duration = Duration::from_secs(50);

enum Told {
    Located(Result<Located, CatalogError>),
    Resumed(Result<Placement, WakeError>),
    Hangs,
    Panics,
}

/// One script for both halves of the control plane: each call takes the next line, after its delay.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<VecDeque<(Duration, Told)>>>);

impl Script {
    fn new(lines: impl IntoIterator<Item = (Duration, Told)>) -> Self {
        Self(Arc::new(Mutex::new(lines.into_iter().collect())))
    }

    async fn next(&self, what: &str) -> Told {
        let line = self.0.lock().expect("no panic").pop_front();
        let (delay, told) = line.unwrap_or_else(|| panic!("a {what} that is not in the script"));
        tokio::time::sleep(delay).await;
        match told {
            Told::Hangs => std::future::pending().await,
            Told::Panics => panic!("as the script says"),
            told => told,
        }
    }

    fn assert_used_up(&self) {
        assert_eq!(self.0.lock().expect("no panic").len(), 0, "lines of the script are left");
    }
}

impl Catalog for Script {
    async fn locate(&self, _: &SandboxId) -> Result<Located, CatalogError> {
        match self.next("lookup").await {
            Told::Located(answer) => answer,
            _ => panic!("a lookup where the script has a wake"),
        }
    }
}

impl Resumer for Script {
    async fn resume(&self, _: &Wake) -> Result<Placement, WakeError> {
        match self.next("wake").await {
            Told::Resumed(answer) => answer,
            _ => panic!("a wake where the script has a lookup"),
        }
    }
}

fn resolver(script: &Script) -> Arc<Resolver<Script, Script>> {
    let second = Duration::from_secs(1);
    let policy = Policy {
        ttl: second,
        ttl_with_push: 60 * second,
        stale_if_error: 2 * second,
        negative_ttl: second,
        max_held_per_sandbox: 100,
    };
    let limits = Limits {
        policy,
        max_entries: 100,
        max_held: 100,
        max_held_per_client: 0,
        max_concurrent: 8,
        release_rate: 0,
        max_wakes_per_minute: 0,
        hold_timeout: HOLD,
        lookup_timeout: 5 * second,
        call_timeout: 120 * second,
    };
    let metrics = Metrics::new().expect("metrics");
    Resolver::new(script.clone(), script.clone(), limits, metrics, Handle::current())
}

async fn resolve(resolver: &Arc<Resolver<Script, Script>>, hold: &mut Hold) -> Result<Arc<Route>, Unresolved> {
    let sandbox = SandboxId::new("a").expect("an id");
    let credentials = Credentials { port: Port::ENVD, traffic_token: None, access_token: None };
    let trigger = || Trigger { client: [127, 0, 0, 1].into(), user_agent: "".into(), path: "/".into(), cause: None };
    let ask = Ask {
        sandbox: &sandbox,
        credentials: &credentials,
        client: IpAddr::from([10, 0, 0, 1]).into(),
        wakes: true,
        held: true,
        patience: None,
        trigger: &trigger,
        doubts: false,
        sent: false,
    };
    resolver.resolve(&ask, hold, Instant::now()).await
}

fn asleep() -> (Duration, Told) {
    (MS, Told::Located(Ok(Located::Asleep(Sleep { barred: None, access: None }))))
}

fn place() -> Placement {
    Placement { node: Node::new("10.0.0.1"), execution: None, access: None, until: None }
}

fn woken() -> (Duration, Told) {
    (MS, Told::Resumed(Ok(place())))
}

fn transitioning() -> (Duration, Told) {
    (MS, Told::Resumed(Err(WakeError::Transitioning)))
}

#[tokio::test(start_paused = true)]
async fn a_transition_is_waited_out() {
    let script = Script::new([asleep(), transitioning(), transitioning(), transitioning(), woken()]);
    let mut hold = Hold::new(HOLD);
    assert!(resolve(&resolver(&script), &mut hold).await.is_ok());
    assert!(hold.saw_wake() && hold.held() > 700 * MS * 3 / 4);
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn a_transition_without_end_is_told_at_the_end_of_the_hold() {
    let script = Script::new(std::iter::once(asleep()).chain((0..100).map(|_| transitioning())));
    let start = Instant::now();
    let outcome = resolve(&resolver(&script), &mut Hold::new(HOLD)).await;
    assert_eq!(outcome.map(drop), Err(Unresolved::StillTransitioning));
    assert_eq!(start.elapsed(), HOLD);
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_outlasts_the_hold_goes_on_for_the_next_request() {
    let script = Script::new([asleep(), (HOLD + HOLD / 2, Told::Resumed(Ok(place())))]);
    let resolver = resolver(&script);
    assert_eq!(resolve(&resolver, &mut Hold::new(HOLD)).await.map(drop), Err(Unresolved::HoldTimeout));
    let mut hold = Hold::new(HOLD);
    assert!(resolve(&resolver, &mut hold).await.is_ok());
    assert!(hold.held() < HOLD);
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_is_an_outage_after_its_timeout() {
    let script = Script::new([(MS, Told::Hangs)]);
    let start = Instant::now();
    assert_eq!(resolve(&resolver(&script), &mut Hold::new(HOLD)).await.map(drop), Err(Unresolved::Unavailable));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_panics_frees_everybody() {
    for script in [Script::new([(MS, Told::Panics)]), Script::new([asleep(), (MS, Told::Panics)])] {
        let resolver = resolver(&script);
        let (mut one, mut two) = (Hold::new(HOLD), Hold::new(HOLD));
        let (one, two) = tokio::join!(resolve(&resolver, &mut one), resolve(&resolver, &mut two));
        assert_eq!((one.map(drop), two.map(drop)), (Err(Unresolved::Unavailable), Err(Unresolved::Unavailable)));
        script.assert_used_up();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_cancels_nothing() {
    let script = Script::new([asleep(), (100 * MS, Told::Resumed(Ok(place())))]);
    let resolver = resolver(&script);
    let (mut first, mut second) = (Hold::new(HOLD), Hold::new(HOLD));
    let mut leaves = Box::pin(resolve(&resolver, &mut first));
    assert!(futures_util::poll!(&mut leaves).is_pending());
    let mut stays = Box::pin(resolve(&resolver, &mut second));
    assert!(futures_util::poll!(&mut stays).is_pending());
    drop(leaves);
    assert!(stays.await.is_ok());
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_sleeps_again_at_once_is_woken_once_more_and_then_told() {
    let script = Script::new([asleep(), woken(), asleep(), woken(), asleep()]);
    let resolver = resolver(&script);
    let sandbox = SandboxId::new("a").expect("an id");
    let mut hold = Hold::new(HOLD);
    for _ in 0..2 {
        let route = resolve(&resolver, &mut hold).await.expect("a route");
        resolver.report(&sandbox, route.generation, Finding::Disowned);
    }
    assert_eq!(resolve(&resolver, &mut hold).await.map(drop), Err(Unresolved::Restless));
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn after_a_quiet_half_hour_the_wake_is_still_asked_for() {
    let running = (MS, Told::Located(Ok(Located::Running(place()))));
    let script = Script::new([running, asleep(), woken()]);
    let resolver = resolver(&script);
    tokio::spawn(resolver.clone().keep_house());
    assert!(resolve(&resolver, &mut Hold::new(HOLD)).await.is_ok());
    tokio::time::sleep(Duration::from_mins(30)).await;
    let mut hold = Hold::new(HOLD);
    assert!(resolve(&resolver, &mut hold).await.is_ok());
    assert!(hold.saw_wake());
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn a_full_house_refuses_at_once_and_asks_nobody() {
    let script = Script::new([(MS, Told::Hangs)]);
    let resolver = resolver(&script);
    let client = IpAddr::from([10, 0, 0, 1]).into();
    let seats: Vec<_> = std::iter::from_fn(|| resolver.held.take_seat(client)).collect();
    assert_eq!(seats.len(), 100);
    let start = Instant::now();
    assert_eq!(resolve(&resolver, &mut Hold::new(HOLD)).await.map(drop), Err(Unresolved::TooManyHeld));
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(seats);
    assert_eq!(resolve(&resolver, &mut Hold::new(HOLD)).await.map(drop), Err(Unresolved::Unavailable));
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_hangs_longer_than_a_request_may_wait_is_an_outage_not_a_slow_wake() {
    let script = Script::new([(MS, Told::Hangs)]);
    let resolver = resolver(&script);
    resolver.adjust(Limits { hold_timeout: SECOND, ..(**resolver.limits.load()).clone() });
    let outcome = resolve(&resolver, &mut Hold::new(SECOND)).await;
    assert_eq!(outcome.map(drop), Err(Unresolved::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn lookups_beyond_the_bound_wait_for_their_turn() {
    let script = Script::new([(MS, Told::Located(Ok(Located::Running(place()))))]);
    let resolver = resolver(&script);
    let mut others = Vec::new();
    for number in 0..MAX_LOOKUPS {
        let client = IpAddr::from([10, 1, 0, u8::try_from(number / 2).expect("small")]).into();
        others.push(resolver.lookups.take(Some(client)).await);
    }
    let mut hold = Hold::new(HOLD);
    let mut waits = Box::pin(resolve(&resolver, &mut hold));
    assert!(futures_util::poll!(&mut waits).is_pending());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(futures_util::poll!(&mut waits).is_pending());
    drop(others);
    assert!(waits.await.is_ok());
    script.assert_used_up();
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_the_catalog_hanging_is_served_from_memory_after_a_moment() {
    let running = (MS, Told::Located(Ok(Located::Running(place()))));
    let script = Script::new([running, (MS, Told::Hangs)]);
    let resolver = resolver(&script);
    let known = resolve(&resolver, &mut Hold::new(HOLD)).await.expect("a route");
    tokio::time::sleep(Duration::from_millis(1001)).await;
    let start = Instant::now();
    // Remembered for a second, and for another one in an outage.
    let again = resolve(&resolver, &mut Hold::new(HOLD)).await.expect("a route");
    assert_eq!(again.generation, known.generation);
    assert_eq!(start.elapsed(), Duration::from_millis(250));
    script.assert_used_up();
}
