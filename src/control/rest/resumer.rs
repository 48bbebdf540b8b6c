//! `resume.kind = "rest"`: `POST /sandboxes/{id}/connect` wakes. That call checks no tokens, its key being
//! the owner's, so whoever may not wake is refused here, before it.

use std::time::Duration;

use http::StatusCode;

use super::{
    catalog::look,
    detail::{Detail, Found},
    wire::{Answer, Api, Fault},
};
use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Resumer, Wake, WakeError},
    types::{Access, Denial, Placement, SandboxId},
};

/// The control API as waker.
#[derive(Debug)]
pub struct RestResumer {
    api: Api,
    node_pointer: String,
    sandbox_timeout: Duration,
}

impl RestResumer {
    /// Makes the client; asks nothing yet. Needs [`crate::control::install_tls_provider`].
    pub fn new(settings: &config::RestResume) -> Result<Self, SetupError> {
        Ok(Self {
            api: Api::new(&settings.url, &settings.api_key)?,
            node_pointer: settings.node_pointer.clone(),
            sandbox_timeout: settings.sandbox_timeout,
        })
    }

    async fn look(&self, id: &SandboxId) -> Result<Found, WakeError> {
        let found = look(&self.api, id, &self.node_pointer).await;
        found.map_err(WakeError::Unavailable)
    }

    /// The call that wakes, on behalf of somebody who may; `known` are the locks known so far.
    async fn connect(&self, id: &SandboxId, known: Access) -> Result<Placement, WakeError> {
        let unavailable = |fault: Fault| WakeError::Unavailable(format!("POST /sandboxes/{id}/connect: {fault}"));
        let answer = self.api.connect(id, self.sandbox_timeout).await;
        let answer = answer.map_err(unavailable)?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {}
            StatusCode::NOT_FOUND => return Err(answer.reason().map_or_else(unavailable, WakeError::Gone)),
            // The tokens were found good before the call.
            StatusCode::FORBIDDEN => return Err(WakeError::Denied(Denial::NotAllowed)),
            StatusCode::CONFLICT => return Err(WakeError::Transitioning),
            StatusCode::TOO_MANY_REQUESTS => return Err(self.exhausted(&answer)),
            _ => return Err(unavailable(answer.unexpected())),
        }
        let body = answer.json().map_err(unavailable)?;
        let mut told = Detail::read(&body, id, &self.node_pointer).map_err(unavailable)?;
        // E2B's own answer names no start time, and its node only where the control plane adds it.
        if told.node.is_none() || told.started_at.is_none() {
            match self.look(id).await {
                Ok(Found::Running(now)) => told = now.or(told),
                Ok(Found::Gone(reason)) => return Err(WakeError::Gone(reason)),
                // The wake succeeded and its place is known: the rest can wait for the next lookup.
                _ if told.node.is_some() => {}
                Ok(Found::Asleep(_)) => {
                    return Err(unavailable("it sleeps again right after the wake".into()));
                }
                Err(error) => return Err(error),
            }
        }
        told.locks = told.locks.or(known.into());
        Ok(told.placement())
    }

    fn exhausted(&self, answer: &Answer) -> WakeError {
        let message = self.api.message(answer);
        WakeError::Exhausted(message.as_deref().unwrap_or("too many sandboxes are running").into())
    }
}

impl Resumer for RestResumer {
    async fn resume(&self, wake: &Wake) -> Result<Placement, WakeError> {
        // Locks that the catalog did not tell may still be there.
        let known = wake.sleep.clone().filter(|sleep| sleep.access.is_some());
        let sleep = match known {
            Some(sleep) => sleep,
            None => match self.look(&wake.id).await? {
                Found::Running(detail) => return Ok(detail.placement()),
                Found::Gone(reason) => return Err(WakeError::Gone(reason)),
                Found::Asleep(sleep) => sleep,
            },
        };
        if let Some(reason) = sleep.barred {
            return Err(WakeError::Gone(reason));
        }
        let access = sleep.access.unwrap_or_default();
        access.check_wake(&wake.credentials).map_err(WakeError::Denied)?;
        self.connect(&wake.id, access).await
    }
}
