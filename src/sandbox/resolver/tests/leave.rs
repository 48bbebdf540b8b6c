//! Who may wake, who waits how long, and in which order.

use tokio::task::{JoinHandle, LocalSet};

use super::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];

/// A request for the sandbox of this name.
struct Request {
    sandbox: &'static str,
    client: [u8; 4],
    wakes: bool,
    patience: Option<Duration>,
}

impl Request {
    fn of(sandbox: &'static str) -> Self {
        Self { sandbox, client: CLIENT, wakes: true, patience: None }
    }

    /// What it is told in the end.
    async fn told<C: Catalog, R: Resumer>(self, resolver: &Arc<Resolver<C, R>>, hold: Duration) -> Told {
        let (start, client) = (Instant::now(), IpAddr::from(self.client));
        let sandbox = SandboxId::new(self.sandbox).expect("an id");
        let credentials = Credentials { port: Port::ENVD, traffic_token: None, access_token: None };
        let trigger = || Trigger { client, user_agent: "".into(), path: "/".into(), cause: None };
        let ask = Ask {
            sandbox: &sandbox,
            credentials: &credentials,
            client: client.into(),
            wakes: self.wakes,
            held: true,
            patience: self.patience,
            trigger: &trigger,
            doubts: false,
            sent: false,
        };
        let outcome = resolver.resolve(&ask, &mut Hold::new(hold), start).await;
        (outcome.map(drop), start.elapsed())
    }

    /// Under way, on the clock that is paused.
    fn send(self, resolver: &Arc<Resolver<Script, Script>>, hold: Duration) -> JoinHandle<Told> {
        let resolver = resolver.clone();
        tokio::task::spawn_local(async move { self.told(&resolver, hold).await })
    }

    async fn ask(self, resolver: &Arc<Resolver<Script, Script>>) -> Told {
        self.send(resolver, HOLD).await.expect("no panic")
    }
}

/// Requests of one thread.
async fn locally(story: impl Future<Output = ()>) {
    LocalSet::new().run_until(story).await;
}

/// Where one wake is called for at a time: one of `a` that is under way, and a second later one of `b` that waits.
async fn queued(resolver: &Arc<Resolver<Script, Script>>) -> [JoinHandle<Told>; 2] {
    let first = Request::of("a").send(resolver, HOLD);
    tokio::time::sleep(SECOND).await;
    let second = Request::of("b").send(resolver, HOLD);
    tokio::time::sleep(SECOND).await;
    [first, second]
}

/// What it was told, and after how long.
type Told = (Result<(), Unresolved>, Duration);

fn wake_in(time: Duration) -> (Duration, super::Told) {
    (time, super::Told::Resumed(Ok(place())))
}

fn with(script: &Script, change: impl FnOnce(&mut Limits)) -> Arc<Resolver<Script, Script>> {
    let resolver = resolver(script);
    let mut limits = (**resolver.limits.load()).clone();
    change(&mut limits);
    resolver.adjust(limits);
    resolver
}

fn held(resolver: &Resolver<Script, Script>) -> usize {
    let metrics = resolver.metrics.render();
    let line = metrics.lines().find_map(|line| line.strip_prefix("client_proxy_held_requests "));
    line.and_then(|count| count.parse().ok()).expect("a gauge")
}

fn state(resolver: &Resolver<Script, Script>, sandbox: &str) -> String {
    let view = resolver.view(&SandboxId::new(sandbox).expect("an id")).expect("known");
    serde_json::to_value(view).expect("JSON")["state"].as_str().expect("a word").to_owned()
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_wait_is_told_that_it_wakes_and_the_wake_goes_on() {
    locally(async {
        let script = Script::new([asleep(), wake_in(9 * SECOND)]);
        let resolver = resolver(&script);
        let (told, after) = Request { patience: Some(2 * SECOND), ..Request::of("a") }.ask(&resolver).await;
        assert_eq!((told, after.as_secs()), (Err(Unresolved::Waking), 2));
        // It holds no place for a call that is made.
        assert_eq!(held(&resolver), 0);
        let (told, after) = Request { patience: Some(60 * SECOND), ..Request::of("a") }.ask(&resolver).await;
        assert_eq!((told, after.as_secs()), (Ok(()), 7));
        tokio::task::yield_now().await;
        assert_eq!(held(&resolver), 0);
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_waits_for_its_turn_goes_on_for_those_told_of_it_and_not_for_those_who_left() {
    locally(async {
        let script = Script::new([asleep(), wake_in(20 * SECOND), asleep(), asleep(), wake_in(SECOND)]);
        let resolver = with(&script, |limits| limits.max_concurrent = 1);
        let first = Request::of("a").send(&resolver, HOLD);
        tokio::time::sleep(SECOND).await;
        let leaves = Request::of("b").send(&resolver, HOLD);
        let told = Request::of("c").send(&resolver, 2 * SECOND);
        tokio::time::sleep(SECOND).await;
        leaves.abort();
        tokio::time::sleep(1500 * MS).await;
        // A wake that waits for its turn is no request.
        assert_eq!((told.is_finished(), held(&resolver)), (true, 1));
        assert_eq!(told.await.expect("no panic").0, Err(Unresolved::HoldTimeout));
        assert_eq!(first.await.expect("no panic").0, Ok(()));
        // The next wake is c's; of b nobody is asked.
        tokio::time::sleep(2 * SECOND).await;
        script.assert_used_up();
        assert_eq!(held(&resolver), 0);
        assert_eq!((state(&resolver, "b"), state(&resolver, "c")), ("asleep".into(), "running".into()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wake_joins_a_wake_and_starts_none() {
    locally(async {
        let script = Script::new([asleep(), wake_in(3 * SECOND)]);
        let resolver = resolver(&script);
        let quiet = || Request { wakes: false, ..Request::of("a") };
        assert_eq!(quiet().ask(&resolver).await.0, Err(Unresolved::Gone(Reason::NotWoken)));
        let wakes = Request::of("a").send(&resolver, HOLD);
        tokio::time::sleep(SECOND).await;
        let (told, after) = quiet().ask(&resolver).await;
        assert_eq!((told, after.as_secs()), (Ok(()), 2));
        assert_eq!(wakes.await.expect("no panic").0, Ok(()));
        assert_eq!(quiet().ask(&resolver).await.0, Ok(()));
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_wakes_so_many_in_a_minute_and_failures_count() {
    locally(async {
        let denied = (MS, super::Told::Resumed(Err(WakeError::Denied(Denial::Denied))));
        let script = Script::new([asleep(), denied, asleep(), woken(), asleep(), asleep(), woken(), asleep(), woken()]);
        let resolver = with(&script, |limits| limits.max_wakes_per_minute = 2);
        assert_eq!(Request::of("a").ask(&resolver).await.0, Err(Unresolved::Denied(Denial::Denied)));
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(Request::of("b").ask(&resolver).await.0, Ok(()));
        let Err(Unresolved::TooManyWakes(left)) = Request::of("c").ask(&resolver).await.0 else { panic!("woken") };
        assert_eq!(left.as_secs(), 39);
        assert_eq!(Request { client: [10, 0, 0, 2], ..Request::of("d") }.ask(&resolver).await.0, Ok(()));
        tokio::time::sleep(40 * SECOND).await;
        assert_eq!(Request::of("c").ask(&resolver).await.0, Ok(()));
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_waking_is_switched_off_nothing_is_woken_and_what_waits_for_its_turn_is_told() {
    locally(async {
        let script = Script::new([asleep(), wake_in(5 * SECOND), asleep(), asleep(), woken()]);
        let resolver = with(&script, |limits| limits.max_concurrent = 1);
        let [first, queued] = queued(&resolver).await;
        resolver.suspend(Some(10 * SECOND));
        assert_eq!(first.await.expect("no panic").0, Ok(()), "a call under way goes on");
        let Err(Unresolved::Suspended(left)) = queued.await.expect("no panic").0 else { panic!("woken") };
        assert_eq!(left.as_secs(), 10, "at once");
        assert_eq!(resolver.suspended_for().map(|left| left.as_secs()), Some(6));
        tokio::time::sleep(7 * SECOND).await;
        assert_eq!(resolver.suspended_for(), None);
        assert_eq!(Request::of("b").ask(&resolver).await.0, Ok(()), "it is on again by itself");
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn held_requests_are_let_through_one_by_one_and_none_later_than_its_time() {
    locally(async {
        let script = Script::new([asleep(), wake_in(2 * SECOND)]);
        let resolver = with(&script, |limits| limits.release_rate = 2);
        let crowd: Vec<_> = (0..20).map(|_| Request::of("a").send(&resolver, 6 * SECOND)).collect();
        let mut after = Vec::new();
        for request in crowd {
            let (told, time) = request.await.expect("no panic");
            assert_eq!(told, Ok(()));
            after.push(time.as_millis() / 500);
        }
        after.sort_unstable();
        // Two a second from the wake on; those whose time is over first go then.
        assert_eq!(after[..8], [4, 5, 6, 7, 8, 9, 10, 11]);
        assert!(after[8..].iter().all(|time| *time == 12), "{after:?}");
        assert_eq!(held(&resolver), 0);
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_holds_so_many_and_another_has_its_own() {
    locally(async {
        let script = Script::new([asleep(), wake_in(2 * SECOND)]);
        let resolver = with(&script, |limits| limits.max_held_per_client = 2);
        let own: Vec<_> = (0..2).map(|_| Request::of("a").send(&resolver, HOLD)).collect();
        tokio::time::sleep(SECOND).await;
        let (told, after) = Request::of("a").ask(&resolver).await;
        assert_eq!((told, after), (Err(Unresolved::TooManyHeld), Duration::ZERO));
        let others = Request { client: [10, 0, 0, 2], ..Request::of("a") }.ask(&resolver).await;
        assert_eq!(others.0, Ok(()));
        for request in own {
            assert_eq!(request.await.expect("no panic").0, Ok(()));
        }
        assert!(resolver.held.take_seat(IpAddr::from(CLIENT).into()).is_some());
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_s_own_deadline_is_no_outage_of_the_catalog() {
    locally(async {
        let script = Script::new([(3 * SECOND, super::Told::Located(Ok(Located::Running(place()))))]);
        let resolver = resolver(&script);
        let (told, after) = Request::of("a").send(&resolver, SECOND).await.expect("no panic");
        assert_eq!((told, after), (Err(Unresolved::HoldTimeout), SECOND));
    })
    .await;
}

/// A control plane that wakes nobody: it says so, and that is what requests are told.
#[derive(Clone)]
struct Nobody;

impl Catalog for Nobody {
    async fn locate(&self, _: &SandboxId) -> Result<Located, CatalogError> {
        Ok(Located::Absent)
    }
}

impl Resumer for Nobody {
    fn wakes(&self) -> bool {
        false
    }

    async fn resume(&self, _: &Wake) -> Result<Placement, WakeError> {
        Err(WakeError::Gone(Reason::Unknown))
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_is_woken_there_is_nothing_to_switch_off() {
    let limits = (**resolver(&Script::default()).limits.load()).clone();
    let metrics = Metrics::new().expect("metrics");
    let resolver = Resolver::new(Nobody, Nobody, limits, metrics, Handle::current());
    resolver.suspend(Some(60 * SECOND));
    let told = Request::of("a").told(&resolver, HOLD).await;
    assert_eq!(told, (Err(Unresolved::Gone(Reason::Unknown)), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn whoever_joins_a_wake_that_waits_brings_its_own_turn_along() {
    locally(async {
        let hangs = || (MS, super::Told::Hangs);
        let lines = [asleep(), hangs(), asleep(), hangs(), asleep(), hangs(), asleep(), woken()];
        let script = Script::new(lines);
        let resolver = with(&script, |limits| limits.max_concurrent = 4);
        let mut burst = Vec::new();
        for sandbox in ["a", "b", "c", "v"] {
            burst.push(Request::of(sandbox).send(&resolver, HOLD));
            tokio::time::sleep(10 * MS).await;
        }
        let joins = Request { client: [10, 0, 0, 2], ..Request::of("v") };
        let (told, after) = joins.ask(&resolver).await;
        assert_eq!((told, after < SECOND), (Ok(()), true));
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_wake_promises_nothing() {
    locally(async {
        let script = Script::new([asleep(), wake_in(10 * SECOND), asleep()]);
        let resolver = with(&script, |limits| limits.max_concurrent = 1);
        let [first, queued] = queued(&resolver).await;
        let quiet = Request { wakes: false, patience: Some(Duration::ZERO), ..Request::of("b") };
        assert_eq!(quiet.ask(&resolver).await.0, Err(Unresolved::Waking));
        queued.abort();
        assert_eq!(first.await.expect("no panic").0, Ok(()));
        tokio::time::sleep(SECOND).await;
        // Of b nobody is asked.
        script.assert_used_up();
        assert_eq!(state(&resolver, "b"), "asleep");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_promise_is_kept_no_longer_than_a_request_could_wait() {
    locally(async {
        let script = Script::new([asleep(), (MS, super::Told::Hangs), asleep()]);
        let resolver = with(&script, |limits| limits.max_concurrent = 1);
        let first = Request::of("a").send(&resolver, HOLD);
        tokio::time::sleep(SECOND).await;
        let told = Request { patience: Some(Duration::ZERO), ..Request::of("b") }.ask(&resolver).await.0;
        assert_eq!((told, state(&resolver, "b")), (Err(Unresolved::Waking), "resuming".into()));
        tokio::time::sleep(HOLD + SECOND).await;
        assert_eq!(state(&resolver, "b"), "asleep");
        assert!(first.await.expect("no panic").0.is_err());
        script.assert_used_up();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_may_not_wake_keeps_no_wake_going() {
    locally(async {
        let script = Script::new([asleep(), wake_in(10 * SECOND), asleep(), asleep()]);
        let resolver = with(&script, |limits| limits.max_concurrent = 1);
        let [first, queued] = queued(&resolver).await;
        let quiet = Request { wakes: false, ..Request::of("b") }.send(&resolver, HOLD);
        tokio::time::sleep(SECOND).await;
        queued.abort();
        // The one for whom it was is gone.
        assert_eq!(quiet.await.expect("no panic").0, Err(Unresolved::Gone(Reason::NotWoken)));
        assert_eq!(first.await.expect("no panic").0, Ok(()));
        tokio::time::sleep(SECOND).await;
        script.assert_used_up();
    })
    .await;
}
