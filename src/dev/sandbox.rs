//! One sandbox: its facts, its life (`lifecycle.rs` decides) and its processes (`process.rs` acts).
//! Work that has begun goes on when its caller leaves.

mod cut;
mod transitions;

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use self::cut::Cut;
use super::{
    clock::micros,
    freeze::Frozen,
    lifecycle::{Due, Lifecycle, Phase, Policy, Refusal},
    proc_tree::Process,
    process::Tree,
    remove::Remover,
    sandboxes::Ground,
};
use crate::types::{Reason, SandboxId};

/// Wakes that are remembered with their times.
const WAKES_KEPT: usize = 100;

/// Why a call on a sandbox failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused(Refusal),
    /// The account may not wake by traffic.
    NotAllowListed,
    TeamLimit(usize),
    /// The machine did not do it; the text is for the user.
    Failed(String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What was decided at creation and never changes.
pub(crate) struct Facts {
    pub(crate) id: SandboxId,
    /// Rises with each creation: the order of lists.
    pub(crate) number: u64,
    pub(crate) template: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) envd_token: String,
    /// Set for a sandbox without public traffic.
    pub(crate) traffic_token: Option<String>,
    pub(crate) internet: Option<bool>,
    /// What its creator wanted of the network, to be told back.
    pub(crate) network: Map<String, Value>,
    pub(crate) policy: Policy,
    /// Its file system.
    pub(crate) folder: PathBuf,
}

/// One call of a proxy that wanted the sandbox awake.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WakeCall {
    /// Microseconds since 1970.
    pub(crate) asked_at: u64,
    pub(crate) done_at: Option<u64>,
}

pub(crate) struct Sandbox {
    pub(crate) facts: Facts,
    state: Mutex<State>,
    /// Rings at every change of phase.
    changed: watch::Sender<()>,
    cut: Cut,
    /// Held by whoever acts on the processes; `None` when there are none.
    tree: tokio::sync::Mutex<Option<Tree>>,
    remover: Remover,
}

struct State {
    life: Lifecycle,
    /// Its place among the running ones.
    place: Option<OwnedSemaphorePermit>,
    started: SystemTime,
    paused: SystemTime,
    root: Option<Process>,
    ip: Ipv4Addr,
    frozen: Frozen,
    wakes: u64,
    wake_calls: Vec<WakeCall>,
}

/// How it stands now, for answers.
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    pub(crate) started: SystemTime,
    pub(crate) ends: SystemTime,
    pub(crate) ip: Ipv4Addr,
    pub(crate) root: Option<Process>,
    /// Wake calls ever.
    pub(crate) wakes: u64,
    /// The latest of them.
    pub(crate) wake_calls: Vec<WakeCall>,
}

impl Snapshot {
    /// A pausing one runs until it is paused, a resuming one sleeps until it runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. } | Phase::Pausing { .. })
    }
}

impl Sandbox {
    /// A sandbox whose tree just started.
    pub(crate) fn new(facts: Facts, tree: Tree, place: OwnedSemaphorePermit, remover: Remover) -> Self {
        let now = SystemTime::now();
        let state = State {
            life: Lifecycle::new(facts.policy, Instant::now()),
            place: Some(place),
            started: now,
            paused: now,
            root: Some(tree.root()),
            ip: tree.ip(),
            frozen: Frozen::default(),
            wakes: 0,
            wake_calls: Vec::new(),
        };
        Self {
            facts,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            cut: Cut::new(),
            tree: tokio::sync::Mutex::new(Some(tree)),
            remover,
        }
    }

    /// No code panics while it holds the lock half-way through a change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a pause that has begun to cut connections can be told of, 3 s at most (it runs, then). To be waited
    /// for before it is told how the sandbox stands: whoever lost a connection hears that it sleeps, and whoever hears
    /// that has lost them all.
    pub(crate) async fn settled(&self) {
        self.cut.over().await;
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let phase = state.life.phase();
        let ends = match phase {
            Phase::Running { until } | Phase::Pausing { until, .. } => {
                SystemTime::now() + until.saturating_duration_since(Instant::now())
            }
            Phase::Paused { .. } | Phase::Resuming { .. } | Phase::Gone(_) => state.paused,
        };
        Snapshot {
            phase,
            started: state.started,
            ends,
            ip: state.ip,
            root: state.root,
            wakes: state.wakes,
            wake_calls: state.wake_calls.clone(),
        }
    }

    /// The root of its process tree, without waiting for anything.
    pub(crate) fn root(&self) -> Option<Process> {
        self.state().root
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) -> Result<(), Fault> {
        self.state().life.set_timeout(Instant::now(), timeout)?;
        self.changed.send_replace(());
        Ok(())
    }

    pub(crate) fn refresh(&self, timeout: Duration) -> Result<(), Fault> {
        self.state().life.refresh(Instant::now(), timeout)?;
        self.changed.send_replace(());
        Ok(())
    }

    /// Ends it for good; returns when no process of it is left, and nobody finds its files.
    pub(crate) async fn end(self: &Arc<Self>, reason: Reason) -> Result<(), Fault> {
        {
            let mut state = self.state();
            state.life.end(reason)?;
            state.place = None;
        }
        self.changed.send_replace(());
        let sandbox = self.clone();
        let _ = tokio::spawn(async move { sandbox.clear().await }).await;
        Ok(())
    }

    /// Like [`Sandbox::end`], and waits also for somebody else's end of it.
    pub(crate) async fn end_and_clear(self: &Arc<Self>) {
        if self.end(Reason::Killed).await.is_err() {
            self.clear().await;
        }
    }

    async fn clear(&self) {
        let mut tree = self.tree.lock().await;
        self.state().root = None;
        if let Some(tree) = tree.take() {
            tree.kill().await;
        }
        self.remover.discard(self.facts.folder.clone()).await;
    }

    /// Does what the passing of time brings, until the end.
    pub(crate) async fn keep_time(self: Arc<Self>, ground: Arc<Ground>) -> Reason {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            let (deadline, due) = {
                let state = self.state();
                if let Phase::Gone(reason) = state.life.phase() {
                    return reason;
                }
                (state.life.deadline(), state.life.due(Instant::now()))
            };
            match due {
                Some(Due::Kill(reason)) => {
                    let _ = self.end(reason).await;
                }
                Some(Due::Pause { memory }) => {
                    let _ = self.pause(&ground, memory).await;
                }
                None => {
                    let due = async {
                        match deadline {
                            Some(at) => sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = due => {}
                        _ = changes.changed() => {}
                    }
                }
            }
        }
    }

    pub(crate) async fn watch_root(self: &Arc<Self>) {
        if let Some(tree) = self.tree.lock().await.as_mut() {
            self.watch(tree);
        }
    }

    /// A sandbox whose root process ended is gone, unless its own pause or end did that.
    fn watch(self: &Arc<Self>, tree: &mut Tree) {
        let Some(ended) = tree.root_ended() else {
            return;
        };
        let (root, sandbox) = (tree.root(), Arc::downgrade(self));
        tokio::spawn(async move {
            ended.await;
            if let Some(sandbox) = sandbox.upgrade()
                && sandbox.root() == Some(root)
            {
                let _ = sandbox.end(Reason::Killed).await;
            }
        });
    }

    fn note_wake_asked(&self) -> u64 {
        let mut state = self.state();
        state.wakes += 1;
        if state.wake_calls.len() == WAKES_KEPT {
            state.wake_calls.remove(0);
        }
        state.wake_calls.push(WakeCall { asked_at: micros(), done_at: None });
        state.wakes
    }

    fn note_wake_done(&self, call: u64) {
        let mut state = self.state();
        let back = usize::try_from(state.wakes - call).unwrap_or(usize::MAX);
        let at = state.wake_calls.len().checked_sub(back.saturating_add(1));
        if let Some(call) = at.and_then(|at| state.wake_calls.get_mut(at)) {
            call.done_at = Some(micros());
        }
    }
}
