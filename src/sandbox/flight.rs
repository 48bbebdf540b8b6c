//! A question to the control plane: detached from the request that caused it, with a limit of its own,
//! and with a landing in every case.

use std::{
    future::{pending, poll_fn},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{
    bell::Bell,
    entry::{Event, FlightId, Launch},
    history::outcome_word,
    ports::{Catalog, CatalogError, Located, Resumer, Wake, WakeError},
    resolver::{Ask, Resolver, Trigger},
    turns::Turn,
};
use crate::{
    telemetry::{metrics::Gauged, traces::Cause},
    types::{ClientNet, Placement, SandboxId},
};

/// First pause after "still transitioning"; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Sends the flight off on the control runtime.
pub(super) fn start<C: Catalog, R: Resumer>(
    resolver: &Arc<Resolver<C, R>>,
    sandbox: &SandboxId,
    launch: Launch,
    ask: Option<&Ask<'_>>,
) {
    // Made here: a task that is dropped before it ran must land, too.
    let landing = |flight| Landing { resolver: resolver.clone(), sandbox: sandbox.clone(), flight, landed: false };
    match launch {
        Launch::Locate { flight } => {
            let client = ask.map(|ask| ask.client);
            resolver.control.spawn(locate(landing(flight), client));
        }
        Launch::Resume { flight, sleep, bell } => {
            let landing = landing(flight);
            // Only a want launches a wake.
            let Some(ask) = ask else { return };
            let wake = Wake { id: sandbox.clone(), credentials: ask.credentials.clone(), sleep };
            let flight = WakeFlight { wake, bell, trigger: (ask.trigger)(), client: ask.client };
            resolver.control.spawn(resume(landing, flight));
        }
    }
}

/// What is known of a wake from the request that caused it.
struct WakeFlight {
    wake: Wake,
    bell: Bell,
    trigger: Trigger,
    client: ClientNet,
}

async fn locate<C: Catalog, R: Resumer>(landing: Landing<C, R>, client: Option<ClientNet>) {
    let Landing { resolver, sandbox, flight, .. } = &landing;
    let flight = *flight;
    let call = async {
        let _turn = resolver.lookups.take(client).await;
        resolver.catalog.locate(sandbox).await
    };
    let limit = resolver.limits.load().lookup_timeout;
    let answer = timeout(limit, call).await;
    let outcome = answer.unwrap_or_else(|_| Err(CatalogError("no answer in time".into())));
    resolver.metrics.lookup(match &outcome {
        Ok(Located::Running(_)) => "running",
        Ok(Located::Asleep(_)) => "asleep",
        Ok(Located::Absent) => "absent",
        Ok(Located::Gone(_)) => "gone",
        Err(_) => "error",
    });
    if let Err(error) = &outcome {
        tracing::warn!(%sandbox, %error, "lookup failed");
    }
    landing.land(Event::Located { flight, outcome: outcome.map_err(|_| ()) });
}

async fn resume<C: Catalog, R: Resumer>(landing: Landing<C, R>, wake_flight: WakeFlight) {
    let Landing { resolver, flight, .. } = &landing;
    let (flight, WakeFlight { wake, bell, trigger, .. }) = (*flight, &wake_flight);
    let mut started = None;
    let mut pause = FIRST_PAUSE;
    let (outcome, took) = loop {
        let Some(turn) = turn(resolver, &wake_flight).await else {
            let Some(started) = started else {
                resolver.warden.give_back(wake_flight.client);
                return landing.land(Event::NotAsked { flight });
            };
            // It was asked, and the last answer stands.
            let started: Instant = started;
            break (Err(WakeError::Transitioning), started.elapsed());
        };
        // Waiting for a turn says nothing of how long a wake takes.
        bell.asked();
        let started = *started.get_or_insert_with(Instant::now);
        let outcome = call(resolver, wake, trigger.cause.as_ref()).await;
        drop(turn);
        let again = matches!(outcome, Err(WakeError::Transitioning))
            && started.elapsed() + pause < resolver.limits.load().hold_timeout;
        if !again {
            break (outcome, started.elapsed());
        }
        bell.transitioning();
        // Jittered, so that proxies that saw the same transition do not ask in step.
        sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    if resolver.resumer.wakes() {
        tell(wake, trigger, bell.waiting(), &outcome, took);
    }
    if outcome.is_ok() {
        resolver.usual.took(took);
    }
    landing.land(Event::Resumed { flight, outcome, took });
}

/// Waits until it may ask, in the queue of each client that waits for it; `None` if there is no reason to any more.
async fn turn<C: Catalog, R: Resumer>(resolver: &Resolver<C, R>, flight: &WakeFlight) -> Option<Turn> {
    let _queued = Gauged::new(&resolver.metrics.queued_wakes);
    let bell = &flight.bell;
    let (mut queues, mut joined) = (vec![Box::pin(resolver.wakes.take(Some(flight.client)))], 0);
    let turn = loop {
        for client in bell.clients(joined) {
            joined += 1;
            queues.push(Box::pin(resolver.wakes.take(Some(client))));
        }
        let called = poll_fn(|cx| {
            let ready = queues.iter_mut().map(|queue| queue.as_mut().poll(cx)).find(Poll::is_ready);
            ready.unwrap_or(Poll::Pending)
        });
        tokio::select! {
            biased;
            () = bell.abandoned() => break None,
            () = switched_off(resolver) => break None,
            turn = called => break Some(turn),
            () = bell.joined() => {}
        }
    };
    // Those who wait ask again, and are told why.
    turn
}

/// Where nobody is woken there is nothing to be switched off.
async fn switched_off<C: Catalog, R: Resumer>(resolver: &Resolver<C, R>) {
    if !resolver.resumer.wakes() {
        pending::<()>().await;
    }
    resolver.warden.switch().turned_off().await;
}

async fn call<C: Catalog, R: Resumer>(
    resolver: &Resolver<C, R>,
    wake: &Wake,
    cause: Option<&Cause>,
) -> Result<Placement, WakeError> {
    let started = Instant::now();
    let span = cause.filter(|_| resolver.resumer.wakes()).map(|cause| cause.wake(&wake.id, wake.credentials.port));
    let limit = resolver.limits.load().call_timeout;
    let answer = timeout(limit, resolver.resumer.resume(wake)).await;
    let outcome = answer.unwrap_or_else(|_| Err(WakeError::Unavailable("no answer in time".into())));
    if resolver.resumer.wakes() {
        resolver.metrics.wake(outcome_word(&outcome), started.elapsed());
    }
    if let Some(span) = span {
        span.end(outcome_word(&outcome), outcome.is_ok());
    }
    outcome
}

/// The one line per wake.
fn tell(wake: &Wake, trigger: &Trigger, held: usize, outcome: &Result<Placement, WakeError>, took: Duration) {
    let Trigger { client, user_agent, path, .. } = trigger;
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let word = outcome_word(outcome);
    let (sandbox, port) = (&wake.id, wake.credentials.port.get());
    if let Err(error @ WakeError::Unavailable(_)) = outcome {
        tracing::warn!(
            target: "wake", %sandbox, port, %client, user_agent, path, held, outcome = word, milliseconds, %error, "wake"
        );
    } else {
        tracing::info!(
            target: "wake", %sandbox, port, %client, user_agent, path, held, outcome = word, milliseconds, "wake"
        );
    }
}

/// Lands a flight exactly once: if nobody says how, it was lost, and whoever waits is told so.
struct Landing<C: Catalog, R: Resumer> {
    resolver: Arc<Resolver<C, R>>,
    sandbox: SandboxId,
    flight: FlightId,
    landed: bool,
}

impl<C: Catalog, R: Resumer> Landing<C, R> {
    fn land(mut self, event: Event<'_>) {
        self.landed = true;
        self.apply(event);
    }

    fn apply(&self, event: Event<'_>) {
        if let Some(act) = self.resolver.table.apply(&self.sandbox, event, Instant::now()) {
            self.resolver.perform(&self.sandbox, act, None);
        }
    }
}

impl<C: Catalog, R: Resumer> Drop for Landing<C, R> {
    fn drop(&mut self) {
        if !self.landed {
            // Otherwise the process ends, and its runtime with all that flies.
            if std::thread::panicking() {
                tracing::error!(sandbox = %self.sandbox, "a call to the control plane panicked");
            }
            self.apply(Event::Lost { flight: self.flight });
        }
    }
}
