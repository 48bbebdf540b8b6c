//! `resume.kind = "grpc"`: E2B's API, asked by the service that its own proxy asks.
//!
//! Calls run on the control runtime, whoever waits for them, since its sockets live there; dropping the future of one
//! cancels it. `ResumeSandbox` may be repeated (a sandbox that runs is told, not woken), so a call that got no answer
//! of the API is made once more within its time: a connection that broke meanwhile costs nobody an error.

mod answer;
mod channel;
mod metadata;
mod oauth;
mod status;
mod token;

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, transport::Channel};

use self::{
    answer::Checked,
    oauth::OAuth,
    proto::{SandboxResumeRequest, sandbox_service_client::SandboxServiceClient},
    status::Outcome,
};
use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Resumer, Wake, WakeError},
    types::{Credentials, Placement, SandboxId},
};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::unwrap_used,
    reason = "generated from proto/ by build.rs"
)]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/client/proxy.rs"));
}

/// The longest answer that is taken, in bytes: it names one host.
const MAX_ANSWER: usize = 16 << 10;

/// The API as waker.
#[derive(Debug)]
pub struct GrpcResumer {
    api: Arc<Api>,
    control: Handle,
}

impl GrpcResumer {
    /// Makes the channel, which connects when it is first needed. A call may take `call_timeout`. Needs
    /// [`crate::control::install_tls_provider`].
    pub fn new(settings: &config::GrpcResume, call_timeout: Duration, control: &Handle) -> Result<Self, SetupError> {
        let channel = channel::open(settings, control)?;
        let oauth = settings.oauth.as_ref().map(|oauth| OAuth::new(oauth, control)).transpose()?;
        Ok(Self { api: Arc::new(Api { channel, oauth, call_timeout }), control: control.clone() })
    }
}

impl Resumer for GrpcResumer {
    async fn resume(&self, wake: &Wake) -> Result<Placement, WakeError> {
        let (api, id, credentials) = (self.api.clone(), wake.id.clone(), wake.credentials.clone());
        let call = self.control.spawn(async move { api.resume(&id, &credentials).await });
        let landed = AbortOnDropHandle::new(call).await;
        // It panicked, or the runtime ends.
        landed.unwrap_or_else(|_| Err(WakeError::Unavailable("the call was lost".into())))
    }
}

#[derive(Debug)]
struct Api {
    channel: Channel,
    oauth: Option<OAuth>,
    call_timeout: Duration,
}

impl Api {
    async fn resume(&self, id: &SandboxId, credentials: &Credentials) -> Result<Placement, WakeError> {
        let deadline = Instant::now() + self.call_timeout;
        // The channel's own timer runs only from when there is a connection.
        let outcome = tokio::time::timeout_at(deadline, self.attempts(id, credentials, deadline)).await;
        outcome.unwrap_or(Outcome::Expired).told()
    }

    /// One call; and one more after each of the two failures that a second one may heal.
    async fn attempts(&self, id: &SandboxId, credentials: &Credentials, deadline: Instant) -> Outcome {
        let (mut was_cut, mut was_refused) = (false, false);
        loop {
            let token = match &self.oauth {
                None => None,
                Some(oauth) => match oauth.token().await {
                    Ok(token) => Some(token),
                    Err(fault) => return Outcome::NoToken(fault),
                },
            };
            let mut request = Request::new(SandboxResumeRequest { sandbox_id: id.as_str().into() });
            metadata::write(request.metadata_mut(), credentials, token.as_ref());
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
            let mut client =
                SandboxServiceClient::new(Checked(self.channel.clone())).max_decoding_message_size(MAX_ANSWER);
            let outcome = match client.resume_sandbox(request).await {
                Ok(answer) => Outcome::Runs(answer.into_inner().orchestrator_ip),
                Err(status) => Outcome::of(&status, credentials, token.as_ref()),
            };
            match (&outcome, &self.oauth, token) {
                (Outcome::Unauthenticated, Some(oauth), Some(token)) if !was_refused => {
                    was_refused = true;
                    oauth.refused(&token);
                }
                (Outcome::Cut(_), ..) if !was_cut => was_cut = true,
                _ => return outcome,
            }
        }
    }
}
