//! A control plane that speaks E2B's REST API: `GET /sandboxes/{id}` and `POST /sandboxes/{id}/connect`.
//!
//! Each sandbox has a state, which lookups tell and wakes change, and may have scripts that say otherwise
//! call by call. Nobody wakes a sandbox that has no script for it. Dropping the control plane panics if a
//! step of a script is left, or if a call came that was not expected.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::watch};

use super::{Server, answer, eventually, json as json_answer, own_ip};

/// The only key that it takes; no line, page or answer may show it.
pub const KEY: &str = "e2b_5ec7e7c0ffee";

/// What it does with one call.
#[derive(Clone)]
pub enum Step {
    /// What the sandbox's state demands: a lookup tells it, a connect wakes.
    Truly,
    /// A connect that wakes, only for the sandbox to be paused again at once.
    Briefly,
    /// This answer.
    Tells(u16, Value),
    /// Not JSON.
    Garbage,
    /// A success with this body, JSON or not.
    Says(&'static str),
    /// No answer ever.
    Hangs,
    /// First waits for the gate.
    After(Gate, Box<Self>),
    /// First does this.
    Doing(Arc<dyn Fn() + Send + Sync>, Box<Self>),
}

impl Step {
    /// An error in the API's own form.
    pub fn error(status: u16, message: &str) -> Self {
        Self::Tells(status, json!({ "code": status, "message": message }))
    }

    /// A 404 that says why.
    pub fn gone(error_code: &str) -> Self {
        Self::Tells(404, json!({ "code": 404, "message": "gone", "error_code": error_code }))
    }

    /// Still transitioning.
    pub fn conflict() -> Self {
        Self::error(409, "the sandbox is being paused")
    }

    /// The same once the gate is open.
    pub fn after(self, gate: &Gate) -> Self {
        Self::After(gate.clone(), Box::new(self))
    }

    /// The same, and this before.
    pub fn doing(self, deed: impl Fn() + Send + Sync + 'static) -> Self {
        Self::Doing(Arc::new(deed), Box::new(self))
    }
}

/// Keeps calls waiting until it is opened.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn opened(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lookup,
    Connect,
}

#[derive(Default)]
struct Script {
    steps: VecDeque<Step>,
    /// What follows the steps.
    then: Option<Step>,
    /// Without steps and without this, the state alone answers.
    written: bool,
    calls: usize,
}

#[derive(Default)]
struct Record {
    /// What a lookup tells; null: there is no such sandbox.
    detail: Value,
    lookups: Script,
    connects: Script,
}

#[derive(Default)]
struct State {
    records: Mutex<HashMap<String, Record>>,
    faults: Mutex<Vec<String>>,
    lives: AtomicU64,
}

/// The control plane; ends when dropped.
pub struct ControlPlane {
    pub address: SocketAddr,
    state: Arc<State>,
    server: Mutex<Option<Server>>,
}

impl ControlPlane {
    pub async fn start() -> Self {
        let state = Arc::<State>::default();
        let server = serve(&format!("{}:0", own_ip()), state.clone());
        Self { address: server.address, state, server: Mutex::new(Some(server)) }
    }

    /// Ends it: its address refuses connections.
    pub async fn stop(&self) {
        drop(lock(&self.server).take());
        eventually("the control plane is gone", async || TcpStream::connect(self.address).await.is_err()).await;
    }

    /// Begins again where it was.
    pub async fn restart(&self) {
        let server = serve(&self.address.to_string(), self.state.clone());
        *lock(&self.server) = Some(server);
    }

    /// The sandbox of this name; unknown to lookups until it is said to be running or paused.
    pub fn sandbox(&self, id: &str) -> Sandbox {
        lock(&self.state.records).entry(id.to_owned()).or_default();
        Sandbox { id: id.to_owned(), state: self.state.clone() }
    }

    /// The configuration of a proxy that asks this control plane; `more` is the rest of it.
    pub fn config(&self, more: &str) -> String {
        let (url, api_key) = (format!("http://{}", self.address), KEY);
        format!(
            "server.workers = 2\n\
             catalog.kind = \"rest\"\ncatalog.rest.url = \"{url}\"\ncatalog.rest.api_key = \"{api_key}\"\n\
             resume.kind = \"rest\"\nresume.rest.url = \"{url}\"\nresume.rest.api_key = \"{api_key}\"\n{more}\n"
        )
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let faults = lock(&self.state.faults);
        assert!(faults.is_empty(), "the control plane was called against its script: {faults:#?}");
        for (id, record) in &*lock(&self.state.records) {
            let left = (record.lookups.steps.len(), record.connects.steps.len());
            assert_eq!(left, (0, 0), "lookups and connects of {id} that never came");
        }
    }
}

/// One sandbox, as the control plane sees it.
#[derive(Clone)]
pub struct Sandbox {
    id: String,
    state: Arc<State>,
}

impl Sandbox {
    /// It runs on this node now, in a life of its own.
    pub fn running(&self, node: &str) -> &Self {
        let started = self.state.next_life();
        self.set("/state", json!("running")).set("/nodeIP", json!(node)).set("/startedAt", json!(started))
    }

    /// It sleeps, and traffic may wake it; `node` is where it will run then.
    pub fn paused(&self, node: &str) -> &Self {
        self.set("/state", json!("paused"))
            .set("/nodeIP", json!(node))
            .set("/lifecycle", json!({ "autoResume": true, "onTimeout": "pause" }))
    }

    /// It is gone.
    pub fn killed(&self) -> &Self {
        self.record(|record| record.detail = Value::Null);
        self
    }

    /// Sets a field of its detail.
    pub fn set(&self, pointer: &str, value: Value) -> &Self {
        self.record(|record| {
            if record.detail.is_null() {
                record.detail =
                    json!({ "sandboxID": self.id, "templateID": "base", "clientID": "c", "envdVersion": "0.6.7" });
            }
            let name = pointer.trim_start_matches('/');
            record.detail[name] = value;
        });
        self
    }

    /// The next lookups; each must come, and no other.
    pub fn looks_up(&self, steps: impl IntoIterator<Item = Step>) -> &Self {
        self.record(|record| record.lookups.write(steps, None));
        self
    }

    /// Every lookup from now on.
    pub fn always_looks_up(&self, step: Step) -> &Self {
        self.record(|record| record.lookups.write([], Some(step)));
        self
    }

    /// The next wakes; each must come, and no other.
    pub fn wakes(&self, steps: impl IntoIterator<Item = Step>) -> &Self {
        self.record(|record| record.connects.write(steps, None));
        self
    }

    /// Every wake from now on.
    pub fn always_wakes(&self, step: Step) -> &Self {
        self.record(|record| record.connects.write([], Some(step)));
        self
    }

    /// Lookups so far.
    pub fn lookups(&self) -> usize {
        self.record(|record| record.lookups.calls)
    }

    /// Wakes so far.
    pub fn connects(&self) -> usize {
        self.record(|record| record.connects.calls)
    }

    /// Waits until so many wakes have been asked for.
    pub async fn connects_become(&self, count: usize) {
        eventually(&format!("{count} wakes of {}", self.id), async || self.connects() == count).await;
    }

    /// Waits until so many lookups have been made.
    pub async fn lookups_become(&self, count: usize) {
        eventually(&format!("{count} lookups of {}", self.id), async || self.lookups() == count).await;
    }

    fn record<T>(&self, read: impl FnOnce(&mut Record) -> T) -> T {
        read(lock(&self.state.records).entry(self.id.clone()).or_default())
    }
}

impl Script {
    fn write(&mut self, steps: impl IntoIterator<Item = Step>, then: Option<Step>) {
        assert!(self.steps.is_empty(), "a script is written over another that is not used up");
        *self = Self { steps: steps.into_iter().collect(), then, written: true, calls: self.calls };
    }

    fn next(&mut self) -> Option<Step> {
        self.calls += 1;
        self.steps.pop_front().or_else(|| self.then.clone())
    }
}

impl State {
    fn next_life(&self) -> String {
        format!("2026-08-01T00:00:00.{:09}Z", self.lives.fetch_add(1, SeqCst))
    }

    fn fault(&self, text: String) {
        lock(&self.faults).push(text);
    }

    fn step(&self, id: &str, kind: Kind) -> Option<Step> {
        let mut records = lock(&self.records);
        let record = records.entry(id.to_owned()).or_default();
        match kind {
            Kind::Lookup => record.lookups.next().or((!record.lookups.written).then_some(Step::Truly)),
            Kind::Connect => record.connects.next(),
        }
    }

    async fn play(&self, id: &str, kind: Kind) -> Response<Full<Bytes>> {
        let Some(mut step) = self.step(id, kind) else {
            self.fault(format!("an unexpected {kind:?} of {id}"));
            return answer(500, "nobody expected this");
        };
        loop {
            step = match step {
                Step::Truly | Step::Briefly => return self.truly(id, kind, matches!(step, Step::Briefly)),
                Step::Tells(status, body) => return json_answer(status, &body),
                Step::Garbage => return answer(200, "<html>nobody is home</html>"),
                Step::Says(body) => return answer(200, body),
                Step::Hangs => std::future::pending().await,
                Step::After(gate, step) => {
                    gate.opened().await;
                    *step
                }
                Step::Doing(deed, step) => {
                    deed();
                    *step
                }
            };
        }
    }

    fn truly(&self, id: &str, kind: Kind, briefly: bool) -> Response<Full<Bytes>> {
        let mut records = lock(&self.records);
        let detail = &mut records.entry(id.to_owned()).or_default().detail;
        if detail.is_null() {
            return json_answer(404, &json!({ "code": 404, "message": "there is no such sandbox" }));
        }
        if kind == Kind::Lookup {
            return json_answer(200, detail);
        }
        let paused = detail["state"] == "paused";
        let mut told = detail.clone();
        if paused {
            told["state"] = json!("running");
            told["startedAt"] = json!(self.next_life());
            if !briefly {
                *detail = told.clone();
            }
        }
        json_answer(if paused { 201 } else { 200 }, &told)
    }
}

fn serve(address: &str, state: Arc<State>) -> Server {
    Server::on(address, move |request: Request<Incoming>| {
        let state = state.clone();
        async move {
            let header = |name| request.headers().get(name).map_or("", |value| value.to_str().unwrap_or_default());
            let path: Vec<_> = request.uri().path().split('/').collect();
            let (id, kind) = match (request.method(), &path[..]) {
                (&Method::GET, ["", "sandboxes", id]) => (*id, Kind::Lookup),
                (&Method::POST, ["", "sandboxes", id, "connect"]) if header("x-client-proxy-wake") == "1" => {
                    (*id, Kind::Connect)
                }
                _ => {
                    state.fault(format!("{} {}", request.method(), request.uri()));
                    return answer(500, "nobody expected this");
                }
            };
            if header("x-api-key") != KEY {
                state.fault(format!("{kind:?} of {id} without the key"));
            }
            state.play(id, kind).await
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
