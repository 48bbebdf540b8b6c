//! `resume.kind = "grpc"`: E2B's API, asked by the service that its own proxy asks.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Resumer, Wake, WakeError},
    types::Placement,
};

/// The API as waker.
#[derive(Debug)]
pub struct GrpcResumer {}

impl GrpcResumer {
    /// Makes the channel; connects when it is first needed. A call may take `call_timeout`. Needs
    /// [`crate::control::install_tls_provider`].
    pub fn new(_settings: &config::GrpcResume, _call_timeout: Duration, _control: &Handle) -> Result<Self, SetupError> {
        Ok(Self {})
    }
}

impl Resumer for GrpcResumer {
    async fn resume(&self, _wake: &Wake) -> Result<Placement, WakeError> {
        Err(WakeError::Unavailable("not there yet".into()))
    }
}
