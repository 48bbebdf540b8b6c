//! Everything that can keep a request from its sandbox, as one closed sum, and the questions that it answers: whose
//! fault, which code, when to try again, which words. Every match is exhaustive.

use std::time::Duration;

use super::code::Code;
use crate::{
    forward::{
        DialError,
        headers::{BadCoding, UnknownProtocol},
    },
    route::Misrouted,
    sandbox::Unresolved,
    types::{Denial, Port, Reason},
};

/// Why this proxy answers itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Misrouted(#[from] Misrouted),
    #[error("only WebSocket goes by extended CONNECT")]
    UnknownProtocol(#[from] UnknownProtocol),
    #[error(transparent)]
    BadCoding(#[from] BadCoding),
    #[error("envd's internal routes are not for clients")]
    InternalRoute,
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// The sandbox runs, and the last hop, which guards its ports, is ours.
    #[error("the port is private: {0:?}")]
    Locked(Denial),
    #[error("the sandbox has as many connections as it may")]
    TooManyConnections,
    #[error("nobody listens on port {0}")]
    PortClosed(Port),
    #[error("the catalog names no node")]
    NoNode,
    #[error("the node cannot be reached: {0}")]
    NodeUnreachable(#[source] DialError),
    #[error("the connection broke before an answer: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the sandbox switched to a protocol that nobody asked for, or did not where it must")]
    Switched,
    #[error("it does not speak HTTP/2")]
    NotHttp2,
    #[error("the request's body is malformed")]
    BadBody,
    #[error("the sandbox moved while its answer was awaited")]
    Moved,
    #[error("no answer in response_header_timeout")]
    UpstreamTimeout,
    #[error("the proxy is shutting down")]
    Draining,
}

/// Whose fault it is: decides how loudly it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    Client,
    Edge,
    ControlPlane,
    Sandbox,
}

impl Failure {
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Misrouted(_)
            | Self::UnknownProtocol(_)
            | Self::BadCoding(_)
            | Self::InternalRoute
            | Self::Locked(_)
            | Self::BadBody => Blame::Client,
            Self::Unresolved(unresolved) => match unresolved {
                Unresolved::Gone(_)
                | Unresolved::Denied(_)
                | Unresolved::Exhausted(_)
                | Unresolved::TooManyWakes(_)
                | Unresolved::Waking => Blame::Client,
                Unresolved::TooManyHeld | Unresolved::Suspended(_) => Blame::Edge,
                Unresolved::Unavailable
                | Unresolved::StillTransitioning
                | Unresolved::HoldTimeout
                | Unresolved::Restless => Blame::ControlPlane,
            },
            Self::TooManyConnections | Self::Draining | Self::NodeUnreachable(DialError::NoRoom(_)) => Blame::Edge,
            Self::NoNode | Self::NodeUnreachable(_) | Self::Moved => Blame::ControlPlane,
            Self::PortClosed(_) | Self::Broken(_) | Self::Switched | Self::NotHttp2 | Self::UpstreamTimeout => {
                Blame::Sandbox
            }
        }
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Misrouted(misrouted) => match misrouted {
                Misrouted::InvalidHost => Code::InvalidHost,
                Misrouted::MissingHeader => Code::MissingHeader,
                Misrouted::InvalidSandboxId => Code::InvalidSandboxId,
                Misrouted::InvalidPort => Code::InvalidPort,
                Misrouted::UnknownDomain => Code::UnknownDomain,
                Misrouted::ConnectMethod => Code::MethodNotAllowed,
            },
            Self::UnknownProtocol(_) => Code::ProtocolNotSupported,
            Self::BadCoding(BadCoding::Unknown) => Code::CodingNotSupported,
            Self::InternalRoute => Code::InternalRoute,
            Self::Unresolved(unresolved) => match unresolved {
                Unresolved::Gone(_) => Code::SandboxNotFound,
                Unresolved::Denied(denial) => denied(*denial),
                Unresolved::Exhausted(_) => Code::TeamLimit,
                Unresolved::Unavailable => Code::ControlPlaneUnavailable,
                Unresolved::TooManyHeld => Code::TooManyHeld,
                Unresolved::Suspended(_) => Code::WakesSuspended,
                Unresolved::TooManyWakes(_) => Code::TooManyWakes,
                Unresolved::Waking => Code::Waking,
                Unresolved::StillTransitioning => Code::StillTransitioning,
                Unresolved::HoldTimeout => Code::HoldTimeout,
                Unresolved::Restless => Code::NodeUnavailable,
            },
            Self::Locked(denial) => denied(*denial),
            Self::TooManyConnections => Code::TooManyConnections,
            Self::PortClosed(_) => Code::PortClosed,
            // It lives elsewhere: a 502 would say that it is dead.
            Self::NoNode | Self::NodeUnreachable(_) | Self::Moved => Code::NodeUnavailable,
            Self::Broken(_) | Self::Switched | Self::NotHttp2 => Code::UpstreamFailed,
            Self::BadBody | Self::BadCoding(BadCoding::Repeated) => Code::InvalidBody,
            Self::UpstreamTimeout => Code::UpstreamTimeout,
            Self::Draining => Code::Draining,
        }
    }

    /// When a later try may succeed, where one may. `wake`: how long one usually takes.
    pub(crate) fn retry_after(&self, wake: Duration) -> Option<Duration> {
        match self {
            Self::Unresolved(Unresolved::Suspended(left) | Unresolved::TooManyWakes(left)) => Some(*left),
            Self::Unresolved(
                Unresolved::Waking
                | Unresolved::HoldTimeout
                | Unresolved::StillTransitioning
                | Unresolved::TooManyHeld
                | Unresolved::Restless,
            ) => Some(wake),
            _ => self.code().meaning().retryable.then_some(Duration::from_secs(1)),
        }
    }

    /// The word behind `reason`, where one is known.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Unresolved(Unresolved::Gone(reason)) => Some(reason.as_str()),
            _ => None,
        }
    }

    /// What the caller may read: what happened and what to do. No address, nothing that an upstream said,
    /// but the words that the control plane meant for its user.
    pub(crate) fn message(&self) -> String {
        let text = match self {
            Self::Unresolved(Unresolved::Gone(reason)) => match reason {
                Reason::Unknown => {
                    "The sandbox was not found. Check its id; it may have been killed or have timed out."
                }
                Reason::Killed => "The sandbox was not found: it was killed. Create a new one.",
                Reason::AutoResumeOff => {
                    "The sandbox was not found: it is paused and traffic does not wake it. Connect to it with the SDK, \
                     or create it with auto_resume."
                }
                Reason::FilesystemOnly => {
                    "The sandbox was not found: only its files were kept at the pause. Connect to it with the SDK."
                }
                Reason::Expired => "The sandbox was not found: its snapshot has expired. Create a new one.",
                Reason::NotWoken => {
                    "The sandbox was not found running, and a request like this does not wake it: by a rule of this proxy, \
                     or because it asked for that (X-Sandbox-Wake: never)."
                }
            },
            Self::Unresolved(Unresolved::Denied(Denial::AccessTokenInvalid)) => {
                "Access denied: X-Access-Token is missing, or not the sandbox's own access token."
            }
            Self::Unresolved(Unresolved::Denied(Denial::NotAllowed)) => {
                "Access denied: the control plane does not let traffic wake this sandbox, as where its owner's account is \
                 not allow-listed for that. Its owner can wake it with the SDK (connect)."
            }
            Self::NodeUnreachable(DialError::NoRoom(_)) => {
                "This proxy has no room for another connection now. Try again soon."
            }
            Self::Switched => {
                "The sandbox switched to a protocol that nobody had asked it for, or did not finish the WebSocket handshake."
            }
            Self::NotHttp2 => "The sandbox did not answer in HTTP/2, which the request needs (gRPC).",
            Self::Unresolved(Unresolved::Exhausted(message)) => return message.to_string(),
            Self::Unresolved(Unresolved::Restless) => {
                "The sandbox was woken and went to sleep again before it had the request. Try again soon."
            }
            Self::Moved => {
                "The sandbox moved to another machine before it answered. The request may have been processed; look \
                 before you repeat it."
            }
            Self::PortClosed(port) => {
                return format!(
                    "The sandbox is running but port is not open. Start a server on port {port} that listens on \
                     0.0.0.0, and try again."
                );
            }
            _ => self.code().message(),
        };
        text.into()
    }
}

fn denied(denial: Denial) -> Code {
    match denial {
        Denial::TrafficTokenMissing => Code::TrafficTokenMissing,
        Denial::TrafficTokenInvalid => Code::TrafficTokenInvalid,
        Denial::AccessTokenInvalid | Denial::NotAllowed | Denial::Denied => Code::AccessDenied,
    }
}
