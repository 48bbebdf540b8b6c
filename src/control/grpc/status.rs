//! What came of a call, and what the resolver is told of it. Pure.

use std::{error::Error, iter::successors};

use tonic::{Code, Status};

use super::{answer::NotGrpc, channel::Unreachable, oauth::Fault, token::Token};
use crate::{
    sandbox::ports::WakeError,
    types::{Credentials, Denial, Node, Placement, Reason, Secret},
};

/// The API's word for a sandbox that is just being paused or snapshotted. With `FAILED_PRECONDITION`, any other means
/// that only its files were kept.
const TRANSITIONING: &str = "sandbox is still transitioning";

/// What came of one call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It runs on the machine of this name, or so the API says.
    Runs(String),
    /// The API's final word.
    Refused(WakeError),
    /// The API does not know our token.
    Unauthenticated,
    /// The API, or what stands before it, could not be reached or broke off: a second call may fare better.
    Cut(String),
    /// The API failed.
    Failed(String),
    /// There was no time for an answer.
    Expired,
    /// There is no token to call with.
    NoToken(Fault),
}

impl Outcome {
    /// Reads a status. Texts of the server end here, but for the one that is meant for users.
    pub(super) fn of(status: &Status, credentials: &Credentials, token: Option<&Token>) -> Self {
        // With a cause it is no answer: tonic made it up of whatever broke. Its code then depends on tonic's features.
        if let Some(cause) = status.source() {
            return Self::broken(status, cause);
        }
        match status.code() {
            Code::NotFound => Self::Refused(WakeError::Gone(Reason::Unknown)),
            Code::PermissionDenied => Self::Refused(WakeError::Denied(Denial::Denied)),
            Code::FailedPrecondition if status.message() == TRANSITIONING => Self::Refused(WakeError::Transitioning),
            Code::FailedPrecondition => Self::Refused(WakeError::Gone(Reason::FilesystemOnly)),
            Code::ResourceExhausted => {
                let tokens = [&credentials.traffic_token, &credentials.access_token];
                let tokens = tokens.into_iter().flatten().map(Secret::expose);
                let message = for_users(status.message(), tokens.chain(token.map(Token::as_bytes)));
                Self::Refused(WakeError::Exhausted(message.into()))
            }
            Code::Unauthenticated => Self::Unauthenticated,
            Code::Unavailable => Self::Cut("status UNAVAILABLE".into()),
            code => Self::Failed(format!("status {}", name(code))),
        }
    }

    fn broken(status: &Status, cause: &(dyn Error + 'static)) -> Self {
        let mut causes = successors(Some(cause), |error| (*error).source());
        if causes.clone().any(<dyn Error>::is::<tonic::TimeoutExpired>) {
            return Self::Expired;
        }
        let http = causes.clone().find_map(|cause| cause.downcast_ref::<NotGrpc>());
        if let Some(NotGrpc(status)) = http {
            return match status.as_u16() {
                401 => Self::Unauthenticated,
                429 | 502..=504 => Self::Cut(format!("{}", NotGrpc(*status))),
                _ => Self::Failed(format!("{}", NotGrpc(*status))),
            };
        }
        // Whose words these are is known: ours, rustls', the kernel's. What HTTP/2 says may be the peer's (the data of
        // a GOAWAY), so only its kind is told.
        Self::Cut(match causes.find_map(|cause| cause.downcast_ref::<Unreachable>()) {
            Some(unreachable) => unreachable.to_string(),
            None if status.code() == Code::Unavailable => "the API stopped answering pings".into(),
            None => "the connection broke before an answer".into(),
        })
    }

    /// What the resolver is told.
    pub(super) fn told(self) -> Result<Placement, WakeError> {
        let unavailable = |fault: String| WakeError::Unavailable(format!("ResumeSandbox: {fault}"));
        Err(match self {
            Self::Runs(node) if node.trim().is_empty() => return Ok(placement(None)),
            Self::Runs(node) => match Node::new(&node) {
                Some(node) => return Ok(placement(Some(node))),
                None => unavailable("orchestrator_ip is not a host".into()),
            },
            Self::Refused(error) => error,
            Self::Unauthenticated => unavailable("status UNAUTHENTICATED (are the OAuth settings right?)".into()),
            Self::Cut(fault) | Self::Failed(fault) => unavailable(fault),
            Self::Expired => unavailable("no answer within resume.call_timeout".into()),
            Self::NoToken(fault) => unavailable(format!("no token from the OAuth server: {fault}")),
        })
    }
}

fn placement(node: Option<Node>) -> Placement {
    Placement { node, execution: None, access: None, until: None }
}

/// A message fit to be shown to the API's user: bounded, without control characters, without a token in case it is
/// echoed.
fn for_users<'a>(message: &str, tokens: impl Iterator<Item = &'a [u8]>) -> String {
    const MAX_CHARS: usize = 500;
    let mut text: String = message.chars().filter(|char| !char.is_control()).collect();
    for token in tokens {
        match std::str::from_utf8(token) {
            Ok(token) if !token.is_empty() => text = text.replace(token, "***"),
            _ => {}
        }
    }
    let text: String = text.chars().take(MAX_CHARS).collect();
    if text.trim().is_empty() { "too many sandboxes are running".into() } else { text }
}

/// A code by its name in the specification.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
