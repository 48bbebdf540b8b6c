//! The codes of the error table, and what each means on the wire.

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
    Waking,
    TooManyHeld,
    TooManyWakes,
    WakesSuspended,
    ControlPlaneUnavailable,
    TeamLimit,
    TooManyConnections,
    Draining,
}

/// What a code means on the wire.
#[derive(Clone, Copy)]
pub(crate) struct Meaning {
    pub(crate) word: &'static str,
    pub(crate) status: u16,
    /// The Connect protocol's word. E2B's SDKs read `not_found` as a file or process that is not there,
    /// `already_exists` as a folder that is, and ask `/health` (which wakes) at an `unavailable` without "was not
    /// found" or "port is not open": none of these stands for a state that passes.
    pub(crate) connect: &'static str,
    /// gRPC's number; 14 is what its clients may try again.
    pub(crate) grpc: u8,
    /// RFC 9209 §2.3
    pub(crate) proxy_error: &'static str,
    /// A later try may succeed.
    pub(crate) retryable: bool,
}

impl Code {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 28] = [
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
        Self::Waking,
        Self::TooManyHeld,
        Self::TooManyWakes,
        Self::WakesSuspended,
        Self::ControlPlaneUnavailable,
        Self::TeamLimit,
        Self::TooManyConnections,
        Self::Draining,
    ];

    pub(crate) fn meaning(self) -> Meaning {
        let (word, status, proxy_error, retryable, connect, grpc) = match self {
            Self::InvalidHost => ("invalid_host", 400, "http_request_error", false, "invalid_argument", 3),
            Self::MissingHeader => ("missing_header", 400, "http_request_error", false, "invalid_argument", 3),
            Self::InvalidSandboxId => ("invalid_sandbox_id", 400, "http_request_error", false, "invalid_argument", 3),
            Self::InvalidPort => ("invalid_port", 400, "http_request_error", false, "invalid_argument", 3),
            Self::InvalidBody => ("invalid_body", 400, "http_request_error", false, "invalid_argument", 3),
            Self::UnknownDomain => ("unknown_domain", 421, "http_request_error", false, "invalid_argument", 3),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "http_request_denied", false, "unimplemented", 12),
            Self::ProtocolNotSupported => {
                ("protocol_not_supported", 501, "http_request_denied", false, "unimplemented", 12)
            }
            Self::CodingNotSupported => {
                ("transfer_coding_not_supported", 501, "http_request_error", false, "unimplemented", 12)
            }
            Self::InternalRoute => ("internal_route", 404, "http_request_denied", false, "unimplemented", 12),
            Self::SandboxNotFound => ("sandbox_not_found", 502, "destination_not_found", false, "unavailable", 5),
            Self::AccessDenied => ("access_denied", 403, "http_request_denied", false, "permission_denied", 7),
            Self::TrafficTokenMissing => {
                ("traffic_token_missing", 403, "http_request_denied", false, "permission_denied", 7)
            }
            Self::TrafficTokenInvalid => {
                ("traffic_token_invalid", 403, "http_request_denied", false, "permission_denied", 7)
            }
            Self::PortClosed => ("port_closed", 502, "connection_refused", false, "unavailable", 14),
            Self::UpstreamFailed => ("upstream_failed", 502, "connection_terminated", false, "internal", 13),
            Self::UpstreamTimeout => ("upstream_timeout", 504, "http_response_timeout", false, "deadline_exceeded", 4),
            Self::NodeUnavailable => ("node_unavailable", 503, "destination_unavailable", true, "aborted", 14),
            Self::StillTransitioning => ("still_transitioning", 409, "destination_unavailable", true, "aborted", 14),
            Self::HoldTimeout => ("hold_timeout", 504, "connection_timeout", true, "deadline_exceeded", 4),
            Self::Waking => ("waking", 503, "destination_unavailable", true, "aborted", 14),
            Self::TooManyHeld => ("too_many_held", 503, "connection_limit_reached", true, "resource_exhausted", 8),
            Self::TooManyWakes => ("too_many_wakes", 429, "http_request_denied", true, "resource_exhausted", 8),
            Self::WakesSuspended => ("wakes_suspended", 503, "destination_unavailable", true, "aborted", 14),
            Self::ControlPlaneUnavailable => {
                ("control_plane_unavailable", 503, "destination_unavailable", true, "aborted", 14)
            }
            Self::TeamLimit => ("team_limit", 429, "http_request_denied", false, "resource_exhausted", 8),
            Self::TooManyConnections => {
                ("too_many_connections", 429, "connection_limit_reached", true, "resource_exhausted", 8)
            }
            Self::Draining => ("draining", 503, "destination_unavailable", true, "aborted", 14),
        };
        Meaning { word, status, connect, grpc, proxy_error, retryable }
    }

    /// What happened and what to do, where no more is known than the code.
    pub(crate) fn message(self) -> &'static str {
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
                "Access denied: the control plane does not let this request wake the sandbox. Its token is missing or wrong \
                 (X-Access-Token for envd, e2b-traffic-access-token for other ports), or the sandbox's owner is not \
                 allowed to have it woken by traffic."
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
            Self::Waking => "The sandbox is being woken. Try again soon.",
            Self::TooManyWakes => {
                "Too many sandboxes were woken from this address in the last minute. Try again later."
            }
            Self::WakesSuspended => {
                "The operator of this service has switched the waking of sandboxes off for a while. Try again later."
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
    use crate::types::Reason;

    /// The rows of the README's table: words, status, whether a later try may succeed, Connect's word, gRPC's, when.
    fn documented() -> Vec<[&'static str; 6]> {
        let lines = include_str!("../../README.md").lines();
        let rows = lines.skip_while(|line| !line.starts_with("| `error` |")).take_while(|line| line.starts_with('|'));
        let cells = |row: &'static str| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        rows.skip(2).map(|row| cells(row).try_into().expect("six cells")).collect()
    }

    const NUMBERS: [(u8, &str); 8] = [
        (3, "INVALID_ARGUMENT"),
        (4, "DEADLINE_EXCEEDED"),
        (5, "NOT_FOUND"),
        (7, "PERMISSION_DENIED"),
        (8, "RESOURCE_EXHAUSTED"),
        (12, "UNIMPLEMENTED"),
        (13, "INTERNAL"),
        (14, "UNAVAILABLE"),
    ];

    /// E2B's SDKs, as they read Connect's words.
    #[test]
    fn no_state_that_passes_reads_as_gone_as_there_already_or_as_worth_a_probe() {
        for code in Code::ALL {
            let Meaning { word, status, connect, retryable, .. } = code.meaning();
            assert!(!matches!(connect, "not_found" | "already_exists" | "canceled" | "unknown"), "{word}");
            let said = ["was not found", "port is not open"].iter().any(|words| code.message().contains(words));
            assert_eq!(connect == "unavailable", said, "{word}: the SDK asks /health");
            assert!(!(retryable && (said || status == 502)), "{word}");
        }
    }

    fn words(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    #[test]
    fn the_readme_tells_every_code_with_its_status_and_whether_to_try_again() {
        let mut told = Vec::new();
        for [codes, status, retry, connect, grpc, _] in documented() {
            let status: u16 = status.parse().expect("a status");
            assert!(["", "yes"].contains(&retry), "{codes}: {retry}");
            let grpc = NUMBERS.iter().find(|(_, word)| *word == grpc).unwrap_or_else(|| panic!("no status: {grpc}")).0;
            told.extend(words(codes).map(|word| (word, status, !retry.is_empty(), connect, grpc)));
        }
        told.sort_unstable();
        let meanings = Code::ALL.iter().map(|code| code.meaning());
        let mut meant: Vec<_> = meanings.map(|is| (is.word, is.status, is.retryable, is.connect, is.grpc)).collect();
        meant.sort_unstable();
        assert_eq!(told, meant);
    }

    #[test]
    fn the_readme_tells_every_reason() {
        let row = documented().into_iter().find(|row| row[0] == "`sandbox_not_found`").expect("a row");
        let told: Vec<_> = words(row[5]).filter(|word| *word != "reason").collect();
        assert_eq!(told, Reason::ALL.map(Reason::as_str));
    }
}
