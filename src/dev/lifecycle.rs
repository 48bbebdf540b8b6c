//! The rules of a sandbox's life, pure: what was asked and what time it is go in, what to do comes out.
//! `sandbox.rs` does it. A step that takes time has a beginning and an end; whoever comes between waits.

use std::time::Duration;

use tokio::time::Instant;

use crate::types::Reason;

/// A sandbox woken by traffic lives at least this long, whatever it was created with.
const LEAST_AFTER_WAKE: Duration = Duration::from_mins(5);
/// A pause that failed at the end of the timeout is tried again after this.
const PAUSE_AGAIN: Duration = Duration::from_secs(5);

/// What happens at the end of the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTimeout {
    Kill,
    Pause,
}

/// What the owner decided at creation; it holds for the whole life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) on_timeout: OnTimeout,
    /// Traffic may wake it.
    pub(crate) auto_resume: bool,
    /// The pause at the end of the timeout keeps the memory, not only the files.
    pub(crate) keep_memory: bool,
    /// Time to live at creation.
    pub(crate) timeout: Duration,
    /// How long a paused sandbox is kept; `None` = for ever.
    pub(crate) retention: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running { until: Instant },
    Pausing { until: Instant, memory: bool },
    Paused { since: Instant, memory: bool },
    Resuming { since: Instant, memory: bool, timeout: Duration },
    Gone(Reason),
}

/// Who wants the sandbox to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Its owner, with a time to live.
    Owner(Duration),
    /// A proxy that holds a request for it.
    Traffic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing to do: it is so already.
    Done,
    /// The caller begins the work and tells its end.
    Begin,
    /// Somebody is at the same work; its end is the caller's too.
    Join,
    /// Somebody is at other work: ask again after its end.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Gone(Reason),
    /// It sleeps, and traffic may not wake it for this reason.
    Barred(Reason),
    AlreadyPaused,
    AlreadyRunning,
    NotRunning,
    Transitioning,
}

/// What the passing of time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Pause { memory: bool },
    Kill(Reason),
}

#[derive(Debug)]
pub(crate) struct Lifecycle {
    policy: Policy,
    phase: Phase,
    pauses: u64,
    resumes: u64,
}

impl Lifecycle {
    /// A sandbox that just began to run.
    pub(crate) fn new(policy: Policy, now: Instant) -> Self {
        Self { policy, phase: Phase::Running { until: now + policy.timeout }, pauses: 0, resumes: 0 }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Completed pauses; tells somebody who joined one whether it came to its end.
    pub(crate) fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Completed resumes.
    pub(crate) fn resumes(&self) -> u64 {
        self.resumes
    }

    pub(crate) fn pause(&mut self, memory: bool) -> Result<Step, Refusal> {
        match self.phase {
            Phase::Running { until } => {
                self.phase = Phase::Pausing { until, memory };
                Ok(Step::Begin)
            }
            Phase::Pausing { .. } => Ok(Step::Join),
            Phase::Resuming { .. } => Ok(Step::Wait),
            Phase::Paused { .. } => Err(Refusal::AlreadyPaused),
            Phase::Gone(reason) => Err(Refusal::Gone(reason)),
        }
    }

    pub(crate) fn pause_ended(&mut self, now: Instant, well: bool) {
        let Phase::Pausing { until, memory } = self.phase else {
            return;
        };
        if well {
            self.pauses += 1;
            self.phase = Phase::Paused { since: now, memory };
        } else {
            let until = until.max(now + PAUSE_AGAIN);
            self.phase = Phase::Running { until };
        }
    }

    /// Makes it run, or run on: a running one is never cut short by this.
    pub(crate) fn connect(&mut self, now: Instant, caller: Caller) -> Result<Step, Refusal> {
        match self.phase {
            Phase::Running { until } => {
                if let Caller::Owner(timeout) = caller {
                    self.phase = Phase::Running { until: until.max(now + timeout) };
                }
                Ok(Step::Done)
            }
            Phase::Pausing { .. } => {
                self.may_wake(caller, true)?;
                Ok(Step::Wait)
            }
            Phase::Resuming { .. } => {
                self.may_wake(caller, true)?;
                Ok(Step::Join)
            }
            Phase::Paused { since, memory } => {
                self.may_wake(caller, memory)?;
                let timeout = match caller {
                    Caller::Owner(timeout) => timeout,
                    Caller::Traffic => self.policy.timeout.max(LEAST_AFTER_WAKE),
                };
                self.phase = Phase::Resuming { since, memory, timeout };
                Ok(Step::Begin)
            }
            Phase::Gone(reason) => Err(Refusal::Gone(reason)),
        }
    }

    /// Like an owner's connect, but an error when there is nothing to resume.
    pub(crate) fn resume(&mut self, now: Instant, timeout: Duration) -> Result<Step, Refusal> {
        match self.phase {
            Phase::Running { .. } | Phase::Resuming { .. } => Err(Refusal::AlreadyRunning),
            _ => self.connect(now, Caller::Owner(timeout)),
        }
    }

    /// The resume that has begun leaves the memory behind: a start from the files alone.
    pub(crate) fn reboot(&mut self) {
        if let Phase::Resuming { memory, .. } = &mut self.phase {
            *memory = false;
        }
    }

    fn may_wake(&self, caller: Caller, memory: bool) -> Result<(), Refusal> {
        if caller != Caller::Traffic {
            return Ok(());
        }
        if !self.policy.auto_resume {
            return Err(Refusal::Barred(Reason::AutoResumeOff));
        }
        if !memory {
            return Err(Refusal::Barred(Reason::FilesystemOnly));
        }
        Ok(())
    }

    pub(crate) fn resume_ended(&mut self, now: Instant, well: bool) {
        let Phase::Resuming { since, memory, timeout } = self.phase else {
            return;
        };
        if well {
            self.resumes += 1;
            self.phase = Phase::Running { until: now + timeout };
        } else {
            self.phase = Phase::Paused { since, memory };
        }
    }

    /// Sets the time left, longer or shorter than before.
    pub(crate) fn set_timeout(&mut self, now: Instant, timeout: Duration) -> Result<(), Refusal> {
        self.end_at(|_| now + timeout)
    }

    /// Sets the least time left.
    pub(crate) fn refresh(&mut self, now: Instant, timeout: Duration) -> Result<(), Refusal> {
        self.end_at(|until| until.max(now + timeout))
    }

    fn end_at(&mut self, change: impl FnOnce(Instant) -> Instant) -> Result<(), Refusal> {
        match self.phase {
            Phase::Running { until } => {
                self.phase = Phase::Running { until: change(until) };
                Ok(())
            }
            Phase::Pausing { .. } | Phase::Resuming { .. } => Err(Refusal::Transitioning),
            Phase::Paused { .. } => Err(Refusal::NotRunning),
            Phase::Gone(reason) => Err(Refusal::Gone(reason)),
        }
    }

    /// Final, at once, whatever else is going on.
    pub(crate) fn end(&mut self, reason: Reason) -> Result<(), Refusal> {
        if let Phase::Gone(reason) = self.phase {
            return Err(Refusal::Gone(reason));
        }
        self.phase = Phase::Gone(reason);
        Ok(())
    }

    /// When [`Lifecycle::due`] is to be asked next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running { until } => Some(until),
            Phase::Paused { since, .. } => self.policy.retention.map(|kept| since + kept),
            Phase::Pausing { .. } | Phase::Resuming { .. } | Phase::Gone(_) => None,
        }
    }

    pub(crate) fn due(&self, now: Instant) -> Option<Due> {
        if self.deadline()? > now {
            return None;
        }
        Some(match (self.phase, self.policy.on_timeout) {
            (Phase::Running { .. }, OnTimeout::Kill) => Due::Kill(Reason::Killed),
            (Phase::Running { .. }, OnTimeout::Pause) => Due::Pause { memory: self.policy.keep_memory },
            _ => Due::Kill(Reason::Expired),
        })
    }
}

#[cfg(test)]
mod tests;
