//! The gRPC resumer against scripted APIs and token servers.

mod answers;
mod connections;
mod tls;
mod tokens;
mod wire;

use std::{fmt::Display, net::SocketAddr, time::Duration};

use client_proxy::{
    config,
    control::{GrpcResumer, SetupError, install_tls_provider},
    sandbox::ports::{Resumer as _, Wake, WakeError},
    types::{Node, Placement},
};
use tokio::{runtime::Handle, time::timeout};

use super::{
    support::{PATIENCE, grpc_api::Step},
    wake,
};

/// Longer than any call of these tests takes.
const LONG: Duration = Duration::from_secs(30);

/// Plain, without tokens.
#[allow(clippy::needless_pass_by_value, reason = "texts and addresses alike")]
fn settings(address: impl Display) -> config::GrpcResume {
    config::GrpcResume { address: address.to_string(), tls: false, ca: None, oauth: None }
}

fn try_resumer(settings: &config::GrpcResume, call_timeout: Duration) -> Result<GrpcResumer, SetupError> {
    install_tls_provider();
    GrpcResumer::new(settings, call_timeout, &Handle::current())
}

fn resumer(address: SocketAddr) -> GrpcResumer {
    try_resumer(&settings(address), LONG).expect("a resumer")
}

/// Without any token, for a user port.
fn anybody() -> Wake {
    wake(None, 80, None, None)
}

async fn resume(resumer: &GrpcResumer, wake: &Wake) -> Result<Placement, WakeError> {
    timeout(PATIENCE, resumer.resume(wake)).await.expect("an outcome in time")
}

/// The node that a success names; `None`: it names none.
fn node(outcome: &Result<Placement, WakeError>) -> Option<&str> {
    match outcome {
        Ok(placement) => placement.node.as_ref().map(Node::as_str),
        Err(error) => panic!("a success expected, {error:?} came"),
    }
}

/// What operators read of a fault.
fn fault(outcome: Result<Placement, WakeError>) -> String {
    match outcome {
        Err(WakeError::Unavailable(text)) => text,
        other => panic!("a fault expected, {other:?} came"),
    }
}

fn runs() -> Step {
    Step::runs("10.0.0.5")
}
