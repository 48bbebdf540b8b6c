//! Everything that can keep a request from its sandbox, as one closed sum, and the four questions that
//! it answers: whose fault, which code, which answer, which words. Every match is exhaustive.

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

/// The codes of the error table: public API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidHost,
    MissingHeader,
    InvalidSandboxId,
    InvalidPort,
    InvalidBody,
    UnknownDomain,
    MethodNotAllowed,
    ProtocolNotSupported,
    CodingNotSupported,
    InternalRoute,
    SandboxNotFound,
    AccessDenied,
    TrafficTokenMissing,
    TrafficTokenInvalid,
    PortClosed,
    UpstreamFailed,
    UpstreamTimeout,
    NodeUnavailable,
    StillTransitioning,
    HoldTimeout,
    TooManyHeld,
    ControlPlaneUnavailable,
    TeamLimit,
    TooManyConnections,
    Draining,
}

/// What a code means on the wire.
pub(crate) struct Meaning {
    pub(crate) word: &'static str,
    pub(crate) status: u16,
    /// RFC 9209 §2.3
    pub(crate) proxy_error: &'static str,
    /// A later try may succeed.
    pub(crate) retryable: bool,
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
                Unresolved::Gone(_) | Unresolved::Denied(_) | Unresolved::Exhausted(_) => Blame::Client,
                Unresolved::TooManyHeld => Blame::Edge,
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
            },
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
        Denial::Denied => Code::AccessDenied,
    }
}

impl Code {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 25] = [
        Self::InvalidHost,
        Self::MissingHeader,
        Self::InvalidSandboxId,
        Self::InvalidPort,
        Self::InvalidBody,
        Self::UnknownDomain,
        Self::MethodNotAllowed,
        Self::ProtocolNotSupported,
        Self::CodingNotSupported,
        Self::InternalRoute,
        Self::SandboxNotFound,
        Self::AccessDenied,
        Self::TrafficTokenMissing,
        Self::TrafficTokenInvalid,
        Self::PortClosed,
        Self::UpstreamFailed,
        Self::UpstreamTimeout,
        Self::NodeUnavailable,
        Self::StillTransitioning,
        Self::HoldTimeout,
        Self::TooManyHeld,
        Self::ControlPlaneUnavailable,
        Self::TeamLimit,
        Self::TooManyConnections,
        Self::Draining,
    ];

    pub(crate) fn meaning(self) -> Meaning {
        let (word, status, proxy_error, retryable) = match self {
            Self::InvalidHost => ("invalid_host", 400, "http_request_error", false),
            Self::MissingHeader => ("missing_header", 400, "http_request_error", false),
            Self::InvalidSandboxId => ("invalid_sandbox_id", 400, "http_request_error", false),
            Self::InvalidPort => ("invalid_port", 400, "http_request_error", false),
            Self::InvalidBody => ("invalid_body", 400, "http_request_error", false),
            Self::UnknownDomain => ("unknown_domain", 421, "http_request_error", false),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "http_request_denied", false),
            Self::ProtocolNotSupported => ("protocol_not_supported", 501, "http_request_denied", false),
            Self::CodingNotSupported => ("transfer_coding_not_supported", 501, "http_request_error", false),
            Self::InternalRoute => ("internal_route", 404, "http_request_denied", false),
            Self::SandboxNotFound => ("sandbox_not_found", 502, "destination_not_found", false),
            Self::AccessDenied => ("access_denied", 403, "http_request_denied", false),
            Self::TrafficTokenMissing => ("traffic_token_missing", 403, "http_request_denied", false),
            Self::TrafficTokenInvalid => ("traffic_token_invalid", 403, "http_request_denied", false),
            Self::PortClosed => ("port_closed", 502, "connection_refused", false),
            Self::UpstreamFailed => ("upstream_failed", 502, "connection_terminated", false),
            Self::UpstreamTimeout => ("upstream_timeout", 504, "http_response_timeout", false),
            Self::NodeUnavailable => ("node_unavailable", 503, "destination_unavailable", true),
            Self::StillTransitioning => ("still_transitioning", 409, "destination_unavailable", true),
            Self::HoldTimeout => ("hold_timeout", 504, "connection_timeout", true),
            Self::TooManyHeld => ("too_many_held", 503, "connection_limit_reached", true),
            Self::ControlPlaneUnavailable => ("control_plane_unavailable", 503, "destination_unavailable", true),
            Self::TeamLimit => ("team_limit", 429, "http_request_denied", false),
            Self::TooManyConnections => ("too_many_connections", 429, "connection_limit_reached", true),
            Self::Draining => ("draining", 503, "destination_unavailable", true),
        };
        Meaning { word, status, proxy_error, retryable }
    }

    fn message(self) -> &'static str {
        match self {
            Self::InvalidHost => {
                "The Host names no sandbox. It has the form {port}-{sandbox}.{domain}; or send E2b-Sandbox-Id and \
                 E2b-Sandbox-Port to localhost, an IP address or sandbox.{domain}."
            }
            Self::MissingHeader => "This Host needs the headers E2b-Sandbox-Id and E2b-Sandbox-Port, each once.",
            Self::InvalidSandboxId => "The sandbox id has other characters than a-z and 0-9.",
            Self::InvalidPort => "The port is not a number from 1 to 65535.",
            Self::InvalidBody => "The request's body is malformed: its chunks are not what HTTP/1.1 says.",
            Self::UnknownDomain => "The domain is not served here. Check the URL.",
            Self::MethodNotAllowed => "CONNECT is not served here. Send the request to the sandbox's own Host.",
            Self::ProtocolNotSupported => "Over HTTP/2, only WebSocket can be asked for by CONNECT (RFC 8441).",
            Self::CodingNotSupported => "Of transfer codings only chunked is known here. Use Content-Encoding.",
            Self::InternalRoute => "This route is internal to the sandbox.",
            Self::SandboxNotFound => "The sandbox was not found.",
            Self::AccessDenied => {
                "Access denied: X-Access-Token is not the sandbox's own access token, or the control plane does not allow \
                 its owner to have it woken."
            }
            Self::TrafficTokenMissing => "The sandbox is private. Send its token in e2b-traffic-access-token.",
            Self::TrafficTokenInvalid => "The traffic access token does not open this sandbox.",
            Self::PortClosed => "The sandbox is running but port is not open.",
            Self::UpstreamFailed => {
                "The sandbox closed the connection before it answered, or answered in no valid HTTP. The request may have \
                 been processed; look before you repeat it."
            }
            Self::UpstreamTimeout => "The sandbox did not begin to answer in time.",
            Self::NodeUnavailable => "The machine that runs the sandbox cannot be reached now. Try again soon.",
            Self::StillTransitioning => "The sandbox is still being paused or snapshotted. Try again soon.",
            Self::HoldTimeout => {
                "The sandbox is being woken, and takes longer than a request may wait. Try again soon."
            }
            Self::TooManyHeld => "Too many requests wait for sandboxes to wake. Try again soon.",
            Self::ControlPlaneUnavailable => {
                "It cannot be told now where the sandbox runs: the control plane does not answer. Try again soon."
            }
            Self::TeamLimit => "The team's limit of running sandboxes is reached. Stop one, and try again.",
            Self::TooManyConnections => {
                "The sandbox has as many connections as it may have. Close some, and try again."
            }
            Self::Draining => "This proxy is shutting down. Try again: another one will answer.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the README's table: words, status, whether a later try may succeed, when.
    fn documented() -> Vec<[&'static str; 4]> {
        let lines = include_str!("../../README.md").lines();
        let rows = lines.skip_while(|line| !line.starts_with("| `error` |")).take_while(|line| line.starts_with('|'));
        let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        rows.skip(2).map(|row| cells(row).try_into().expect("four cells")).collect()
    }

    fn words(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    #[test]
    fn the_readme_tells_every_code_with_its_status_and_whether_to_try_again() {
        let mut told: Vec<(&str, u16, bool)> = Vec::new();
        for [codes, status, retry, _] in documented() {
            let status = status.parse().expect("a status");
            assert!(["", "yes"].contains(&retry), "{codes}: {retry}");
            told.extend(words(codes).map(|word| (word, status, !retry.is_empty())));
        }
        told.sort_unstable();
        let meanings = Code::ALL.iter().map(|code| code.meaning());
        let mut meant: Vec<_> =
            meanings.map(|Meaning { word, status, retryable, .. }| (word, status, retryable)).collect();
        meant.sort_unstable();
        assert_eq!(told, meant);
    }

    #[test]
    fn the_readme_tells_every_reason() {
        let all = [Reason::Unknown, Reason::Killed, Reason::AutoResumeOff, Reason::FilesystemOnly, Reason::Expired];
        let row = documented().into_iter().find(|row| row[0] == "`sandbox_not_found`").expect("a row");
        let told: Vec<_> = words(row[3]).filter(|word| *word != "reason").collect();
        assert_eq!(told, all.map(Reason::as_str));
    }
}
