//! `resume.kind = "grpc"`: E2B's API, asked by the service that its own proxy asks.
//!
//! The API joins concurrent wakes of a sandbox and answers for one that runs already: a call that may or may not have
//! arrived can be made again.

mod channel;
mod oauth;
mod outcome;
#[expect(unreachable_pub, reason = "generated")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/client/proxy.rs"));
}

use std::time::Duration;

use tokio::{runtime::Handle, time::Instant};
use tonic::{
    Code, Request,
    metadata::{AsciiMetadataValue, MetadataMap},
    transport::Channel,
};

use self::{
    oauth::{Tokens, Unauthorized},
    outcome::Outcome,
    wire::{SandboxResumeRequest, sandbox_service_client::SandboxServiceClient},
};
use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Resumer, Wake, WakeError},
    types::{Credentials, Denial, Placement, Secret},
};

/// An answer has a host name in it.
const MAX_ANSWER: usize = 64 * 1024;

/// The API as waker.
#[derive(Debug)]
pub struct GrpcResumer {
    client: SandboxServiceClient<Channel>,
    tokens: Option<Tokens>,
    /// One wake, whatever it takes; the API is told, too.
    call_timeout: Duration,
}

impl GrpcResumer {
    /// Makes the channel, whose connection lives on `control` and is made when it is first needed. A call may take
    /// `call_timeout`. Needs [`crate::control::install_tls_provider`].
    pub fn new(settings: &config::GrpcResume, call_timeout: Duration, control: &Handle) -> Result<Self, SetupError> {
        let channel = channel::lazy(settings, control).map_err(SetupError::Grpc)?;
        let client = SandboxServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER);
        let tokens = settings.oauth.as_ref().map(|oauth| Tokens::new(oauth, control)).transpose()?;
        Ok(Self { client, tokens, call_timeout })
    }

    async fn call(&self, wake: &Wake, ends: Instant) -> Result<Outcome, Unauthorized> {
        let mut request = Request::new(SandboxResumeRequest { sandbox_id: wake.id.as_str().to_owned() });
        request.set_timeout(ends.saturating_duration_since(Instant::now()));
        match introduce(request.metadata_mut(), &wake.credentials) {
            Ok(()) => {}
            Err(denial) => return Ok(Outcome::Ended(Err(WakeError::Denied(denial)))),
        }
        let token = match &self.tokens {
            None => None,
            Some(tokens) => Some(tokens.get().await?),
        };
        if let Some(token) = &token {
            request.metadata_mut().insert("authorization", token.value());
        }
        let answer = self.client.clone().resume_sandbox(request).await;
        if let (Some(tokens), Some(token), Err(status)) = (&self.tokens, &token, &answer)
            && status.code() == Code::Unauthenticated
            && outcome::was_told(status)
        {
            tokens.refused(token);
            return Ok(Outcome::TokenRefused);
        }
        Ok(outcome::of(answer.map(|answer| answer.into_inner().orchestrator_ip)))
    }
}

impl Resumer for GrpcResumer {
    async fn resume(&self, wake: &Wake) -> Result<Placement, WakeError> {
        let ends = Instant::now() + self.call_timeout;
        let mut again = true;
        loop {
            let outcome = self.call(wake, ends).await;
            match outcome.map_err(|error| WakeError::Unavailable(format!("ResumeSandbox: {error}")))? {
                Outcome::Ended(outcome) => return outcome,
                // A connection that broke is another by now; a token that was refused, too. Once.
                Outcome::Broken(_) | Outcome::TokenRefused if again && Instant::now() < ends => again = false,
                Outcome::Broken(why) => return Err(WakeError::Unavailable(format!("ResumeSandbox: {why}"))),
                Outcome::TokenRefused => {
                    return Err(WakeError::Unavailable("ResumeSandbox: the API refuses the OAuth token".into()));
                }
            }
        }
    }
}

/// Says on whose behalf the sandbox is to be woken.
fn introduce(metadata: &mut MetadataMap, credentials: &Credentials) -> Result<(), Denial> {
    metadata.insert("e2b-sandbox-request-port", AsciiMetadataValue::from(credentials.port.get()));
    let tokens = [
        ("e2b-traffic-access-token", &credentials.traffic_token, Denial::TrafficTokenInvalid),
        ("e2b-envd-access-token", &credentials.access_token, Denial::Denied),
    ];
    for (name, token, denial) in tokens {
        if let Some(token) = token {
            // gRPC carries visible ASCII: no token of the API's has anything else.
            metadata.insert(name, secret(token).ok_or(denial)?);
        }
    }
    Ok(())
}

/// As metadata that shows up nowhere and in no compression table. Only visible ASCII and the space can stand there
/// (gRPC over HTTP/2, `ASCII-Value`).
fn secret(secret: &Secret) -> Option<AsciiMetadataValue> {
    if !secret.expose().iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return None;
    }
    let mut value = AsciiMetadataValue::try_from(secret.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}
