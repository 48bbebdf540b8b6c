//! What an answer of the API means.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::{
    control::http::with_causes,
    sandbox::ports::WakeError,
    types::{Denial, Node, Placement, Reason},
};

/// With this message, and no other, `FAILED_PRECONDITION` means: ask again soon.
const TRANSITIONING: &str = "sandbox is still transitioning";
/// With these words tonic tells of an answer without a status of gRPC's: of a proxy on the way, by HTTP.
const NO_GRPC: &str = "grpc-status header missing";
/// What a user is shown of the API's words, in bytes.
const MAX_MESSAGE: usize = 1024;

pub(super) enum Outcome {
    Ended(Result<Placement, WakeError>),
    /// The connection failed; whether the API saw the call is not known.
    Broken(String),
    /// The API takes no call with this token.
    TokenRefused,
}

/// `answer` is the node's host, as the API named it.
pub(super) fn of(answer: Result<String, Status>) -> Outcome {
    let status = match answer {
        Ok(host) => return Outcome::Ended(placement(&host)),
        Err(status) => status,
    };
    if !was_told(&status) && !matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) {
        return Outcome::Broken(told(&status));
    }
    Outcome::Ended(Err(match status.code() {
        // No snapshot, or not to be woken by traffic: it does not tell which.
        Code::NotFound => WakeError::Gone(Reason::Unknown),
        Code::PermissionDenied if !status.message().starts_with(NO_GRPC) => WakeError::Denied(Denial::Denied),
        Code::FailedPrecondition if status.message() == TRANSITIONING => WakeError::Transitioning,
        Code::FailedPrecondition => WakeError::Gone(Reason::FilesystemOnly),
        Code::ResourceExhausted => WakeError::Exhausted(shown(status.message()).into()),
        _ => WakeError::Unavailable(format!("ResumeSandbox: {}", told(&status))),
    }))
}

/// Whether the API said so; otherwise this side of the connection did.
pub(super) fn was_told(status: &Status) -> bool {
    status.source().is_none()
}

fn placement(host: &str) -> Result<Placement, WakeError> {
    let node = match host.trim() {
        // It runs, and nobody says where: the route is unavailable.
        "" => None,
        host => Some(
            Node::new(host)
                .ok_or_else(|| WakeError::Unavailable("ResumeSandbox: its orchestrator_ip is no host".into()))?,
        ),
    };
    Ok(Placement { node, execution: None, access: None, until: None })
}

/// For operators.
fn told(status: &Status) -> String {
    let text = format!("{:?} {}", status.code(), shown(status.message()));
    status.source().map_or(text.clone(), |cause| format!("{text}: {}", with_causes(cause)))
}

/// One line of bounded length.
fn shown(message: &str) -> String {
    let mut shown = String::new();
    for letter in message.chars() {
        if shown.len() + letter.len_utf8() > MAX_MESSAGE {
            break;
        }
        shown.push(if letter.is_control() { ' ' } else { letter });
    }
    let shown = shown.trim();
    if shown.is_empty() { "too many sandboxes are running".into() } else { shown.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(answer: Result<String, Status>) -> Result<Placement, WakeError> {
        match of(answer) {
            Outcome::Ended(outcome) => outcome,
            Outcome::Broken(why) => panic!("broken: {why}"),
            Outcome::TokenRefused => panic!("refused"),
        }
    }

    #[test]
    fn a_host_is_trimmed_and_an_empty_one_is_no_node() {
        for (host, want) in [(" fd00::1 ", Some("[fd00::1]")), ("10.0.0.5", Some("10.0.0.5")), ("  ", None)] {
            let placement = ended(Ok(host.into())).expect("a placement");
            assert_eq!(placement.node.as_ref().map(Node::as_str), want);
        }
        assert!(matches!(ended(Ok("no host".into())), Err(WakeError::Unavailable(_))));
    }

    #[test]
    fn what_a_proxy_on_the_way_forbids_is_nobodys_token() {
        let status =
            Status::new(Code::PermissionDenied, "grpc-status header missing, mapped from HTTP status code 403");
        assert!(matches!(ended(Err(status)), Err(WakeError::Unavailable(_))));
    }

    #[test]
    fn the_words_for_a_user_are_one_short_line() {
        let status = |message: &str| Err(Status::new(Code::ResourceExhausted, message));
        let Err(WakeError::Exhausted(message)) = ended(status("at\r\nmost 20")) else { panic!("not exhausted") };
        assert_eq!(&*message, "at  most 20");
        let Err(WakeError::Exhausted(message)) = ended(status(&"ä".repeat(2000))) else { panic!("not exhausted") };
        assert_eq!(message.len(), MAX_MESSAGE);
        let Err(WakeError::Exhausted(message)) = ended(status("\n")) else { panic!("not exhausted") };
        assert!(!message.is_empty());
    }
}
