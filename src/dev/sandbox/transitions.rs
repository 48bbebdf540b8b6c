//! Pausing and resuming: who begins, who joins, who waits, and the work itself.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep, timeout};

use super::{Fault, Sandbox};
use crate::dev::{
    lifecycle::{Caller, Lifecycle, Phase, Refusal, Step},
    sandboxes::Ground,
};

impl Sandbox {
    /// Returns when it is paused, also if somebody else's pause did it.
    pub(crate) async fn pause(self: &Arc<Self>, ground: &Arc<Ground>, memory: bool) -> Result<(), Fault> {
        let mut changes = self.changed.subscribe();
        let wait = async {
            loop {
                changes.mark_unchanged();
                let (step, pauses) = {
                    let mut state = self.state();
                    (state.life.pause(memory)?, state.life.pauses())
                };
                if step == Step::Begin {
                    tokio::spawn(self.clone().do_pause(ground.clone()));
                }
                let _ = changes.changed().await;
                if step == Step::Wait {
                    continue;
                }
                loop {
                    let (phase, done) = {
                        let state = self.state();
                        (state.life.phase(), state.life.pauses() > pauses)
                    };
                    match phase {
                        _ if done => return Ok(()),
                        Phase::Gone(reason) => return Err(Refusal::Gone(reason).into()),
                        Phase::Pausing { .. } => {}
                        _ => {
                            return Err(Fault::Failed("the sandbox could not be paused".to_owned()));
                        }
                    }
                    let _ = changes.changed().await;
                }
            }
        };
        let limit = ground.transition_wait.max(ground.pause_delay * 2);
        timeout(limit, wait).await.unwrap_or(Err(Refusal::Transitioning.into()))
    }

    async fn do_pause(self: Arc<Self>, ground: Arc<Ground>) {
        if !self.put_to_sleep(&ground).await {
            self.state().life.pause_ended(Instant::now(), false);
        }
        self.changed.send_replace(());
    }

    fn sleeps(&self) {
        let mut state = self.state();
        state.life.pause_ended(Instant::now(), true);
        state.paused = SystemTime::now();
        state.place = None;
    }

    async fn put_to_sleep(&self, ground: &Arc<Ground>) -> bool {
        let Phase::Pausing { memory, .. } = self.state().life.phase() else {
            return false;
        };
        {
            let tree = self.tree.lock().await;
            let Some(tree) = tree.as_ref() else {
                return false;
            };
            match tree.freeze().await {
                Ok(frozen) => self.state().frozen = frozen,
                Err(error) => {
                    tracing::warn!(sandbox = %self.facts.id, %error, "the sandbox could not be paused");
                    return false;
                }
            }
        }
        // Not under the lock: a kill need not wait for it.
        sleep(ground.pause_delay).await;
        let mut tree = self.tree.lock().await;
        // A proxy that loses a connection asks at once why; one that hears that it sleeps may wake it for what is still
        // on a connection. So nobody is told anything before all of them are lost.
        let _cutting = self.cut.begin();
        if memory {
            if let Some(tree) = tree.as_ref() {
                tree.reset_connections().await;
            }
        } else if let Some(tree) = tree.take() {
            self.state().root = None;
            tree.kill().await;
        }
        self.sleeps();
        true
    }

    /// Returns whether it was resumed by this call, when it runs.
    /// `memory`: should it have one, that is kept.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        ground: &Arc<Ground>,
        caller: Caller,
        memory: bool,
    ) -> Result<bool, Fault> {
        let call = (caller == Caller::Traffic).then(|| self.note_wake_asked());
        let outcome = self.run(ground, &|life| life.connect(Instant::now(), caller), caller, memory).await;
        if let (Some(call), Ok(_)) = (call, &outcome) {
            self.note_wake_done(call);
        }
        outcome
    }

    /// Returns when it runs; an error if it ran already.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        ground: &Arc<Ground>,
        timeout: Duration,
        memory: bool,
    ) -> Result<(), Fault> {
        let decide = |life: &mut Lifecycle| life.resume(Instant::now(), timeout);
        self.run(ground, &decide, Caller::Owner(timeout), memory).await?;
        Ok(())
    }

    async fn run(
        self: &Arc<Self>,
        ground: &Arc<Ground>,
        decide: &(dyn Fn(&mut Lifecycle) -> Result<Step, Refusal> + Sync),
        caller: Caller,
        memory: bool,
    ) -> Result<bool, Fault> {
        let mut changes = self.changed.subscribe();
        let wait = async {
            loop {
                changes.mark_unchanged();
                let (step, resumes) = {
                    let mut state = self.state();
                    let step = decide(&mut state.life)?;
                    if step == Step::Begin {
                        let place = ground.place_for(caller == Caller::Traffic);
                        if place.is_err() {
                            state.life.resume_ended(Instant::now(), false);
                        }
                        state.place = Some(place?);
                        if !memory {
                            state.life.reboot();
                        }
                    }
                    (step, state.life.resumes())
                };
                match step {
                    Step::Done => {
                        self.changed.send_replace(());
                        return Ok(false);
                    }
                    Step::Join | Step::Wait => {
                        let _ = changes.changed().await;
                        continue;
                    }
                    Step::Begin => {
                        tokio::spawn(self.clone().do_resume(ground.clone()));
                    }
                }
                loop {
                    let _ = changes.changed().await;
                    let state = self.state();
                    match state.life.phase() {
                        _ if state.life.resumes() > resumes => return Ok(true),
                        Phase::Gone(reason) => return Err(Refusal::Gone(reason).into()),
                        Phase::Resuming { .. } => {}
                        _ => {
                            return Err(Fault::Failed("the sandbox could not be resumed".to_owned()));
                        }
                    }
                }
            }
        };
        let limit = ground.transition_wait.max(ground.resume_delay * 2);
        timeout(limit, wait).await.unwrap_or(Err(Refusal::Transitioning.into()))
    }

    async fn do_resume(self: Arc<Self>, ground: Arc<Ground>) {
        sleep(ground.resume_delay).await;
        if !self.wake_up(&ground).await {
            let mut state = self.state();
            state.life.resume_ended(Instant::now(), false);
            state.place = None;
        }
        self.changed.send_replace(());
    }

    fn runs(&self) {
        let mut state = self.state();
        state.life.resume_ended(Instant::now(), true);
        state.started = SystemTime::now();
    }

    async fn wake_up(self: &Arc<Self>, ground: &Arc<Ground>) -> bool {
        let mut tree = self.tree.lock().await;
        let Phase::Resuming { memory, .. } = self.state().life.phase() else {
            return false;
        };
        if memory {
            let frozen = std::mem::take(&mut self.state().frozen);
            let Some(tree) = tree.as_ref() else {
                return false;
            };
            // First: what it answers at once, to a request that reached it asleep, must not be ahead of this.
            self.runs();
            tree.thaw(frozen).await;
            return true;
        }
        if let Some(frozen) = tree.take() {
            self.state().root = None;
            frozen.kill().await;
        }
        match ground.start(&self.facts).await {
            Ok(mut started) => {
                {
                    let mut state = self.state();
                    state.root = Some(started.root());
                    state.ip = started.ip();
                }
                self.watch(&mut started);
                *tree = Some(started);
                self.runs();
                true
            }
            Err(error) => {
                tracing::warn!(sandbox = %self.facts.id, %error, "the sandbox could not be resumed");
                false
            }
        }
    }
}
