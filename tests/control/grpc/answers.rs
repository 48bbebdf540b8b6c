//! What is sent with a call, and what is made of its answer.

use std::time::Duration;

use client_proxy::{
    sandbox::ports::WakeError,
    types::{Credentials, Port, Secret},
};
use tonic::{Code, metadata::KeyAndValueRef};

use super::{LONG, anybody, fault, node, resume, resumer, runs, settings, try_resumer};
use crate::{
    support::grpc_api::{GrpcApi, Step, TRANSITIONING},
    wake,
};

#[tokio::test]
async fn the_node_is_where_the_sandbox_runs() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    for (told, want) in [
        ("10.0.0.5", Some("10.0.0.5")),
        (" 10.0.0.5 \n", Some("10.0.0.5")),
        ("fd00::5", Some("[fd00::5]")),
        ("[fd00::5]", Some("[fd00::5]")),
        ("Node-5.internal", Some("node-5.internal")),
        ("", None),
        ("  ", None),
    ] {
        api.resumes("abc", [Step::runs(told)]);
        let outcome = resume(&resumer, &anybody()).await;
        assert_eq!(node(&outcome), want, "{told:?}");
        let placement = outcome.expect("a success");
        assert!(placement.execution.is_none() && placement.access.is_none() && placement.until.is_none());
    }
    for garbage in ["10.0.0.5:5007", "http://10.0.0.5", "a b", "10.0.0", "a\0b", &"x".repeat(300), "h\u{f6}st"] {
        api.resumes("abc", [Step::runs(garbage)]);
        let text = fault(resume(&resumer, &anybody()).await);
        assert!(text.contains("orchestrator_ip") && !text.contains(garbage), "{text}");
    }
    assert_eq!(api.connections(), 1);
}

#[tokio::test]
async fn every_status_has_its_meaning() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    for (code, want) in [
        (Code::NotFound, "Gone(Unknown)"),
        (Code::PermissionDenied, "Denied(Denied)"),
        (Code::FailedPrecondition, "Gone(FilesystemOnly)"),
        (Code::ResourceExhausted, "Exhausted(\"of the server\")"),
    ] {
        api.resumes("abc", [Step::fails(code, "of the server")]);
        let error = resume(&resumer, &anybody()).await.expect_err("no success");
        assert_eq!(format!("{error:?}"), want);
    }
    for (code, name) in [
        (Code::Cancelled, "CANCELLED"),
        (Code::Unknown, "UNKNOWN"),
        (Code::InvalidArgument, "INVALID_ARGUMENT"),
        (Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        (Code::AlreadyExists, "ALREADY_EXISTS"),
        (Code::Aborted, "ABORTED"),
        (Code::OutOfRange, "OUT_OF_RANGE"),
        (Code::Unimplemented, "UNIMPLEMENTED"),
        (Code::Internal, "INTERNAL"),
        (Code::DataLoss, "DATA_LOSS"),
        (Code::Unauthenticated, "UNAUTHENTICATED"),
    ] {
        api.resumes("abc", [Step::fails(code, "of the server")]);
        let text = fault(resume(&resumer, &anybody()).await);
        assert!(text.contains(name) && !text.contains("of the server"), "{code:?}: {text}");
    }
    // The one that may pass by itself has a second try.
    api.resumes("abc", [Step::fails(Code::Unavailable, "of the server"), Step::fails(Code::Unavailable, "")]);
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("UNAVAILABLE") && !text.contains("of the server"), "{text}");
    // None of them costs the connection.
    assert_eq!(api.connections(), 1);
}

#[tokio::test]
async fn only_the_exact_words_say_that_it_is_being_paused() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    let almost = TRANSITIONING.to_uppercase();
    for (message, want) in [
        (TRANSITIONING, "Transitioning"),
        (&*almost, "Gone(FilesystemOnly)"),
        ("", "Gone(FilesystemOnly)"),
        ("Error: sandbox is still transitioning", "Gone(FilesystemOnly)"),
        ("sandbox is still transitioning.", "Gone(FilesystemOnly)"),
    ] {
        api.resumes("abc", [Step::fails(Code::FailedPrecondition, message)]);
        let error = resume(&resumer, &anybody()).await.expect_err("no success");
        assert_eq!(format!("{error:?}"), want, "{message}");
    }
    for code in [Code::Unknown, Code::Aborted, Code::Internal] {
        api.resumes("abc", [Step::fails(code, TRANSITIONING)]);
        fault(resume(&resumer, &anybody()).await);
    }
}

#[tokio::test]
async fn the_teams_limit_is_told_in_the_apis_words_made_harmless() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    let long = "\u{20ac}".repeat(600);
    for (message, want) in [
        ("you have 20 of 20 sandboxes", "you have 20 of 20 sandboxes"),
        ("too\tmany\r\n", "toomany"),
        (&*long, &long[..500 * 3]),
        ("with traffic-secret and envd-secret", "with *** and ***"),
        ("", "too many sandboxes are running"),
        (" \n", "too many sandboxes are running"),
    ] {
        api.resumes("abc", [Step::fails(Code::ResourceExhausted, message)]);
        let outcome = resume(&resumer, &wake(None, 80, Some("traffic-secret"), Some("envd-secret"))).await;
        assert!(matches!(&outcome, Err(WakeError::Exhausted(text)) if **text == *want), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_call_carries_the_port_and_the_tokens_that_there_are() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    for port in [1, 80, 49983, 65535] {
        for traffic in [None, Some("t-1"), Some("")] {
            for access in [None, Some("a-1"), Some("")] {
                api.resumes("abc", [runs()]);
                node(&resume(&resumer, &wake(None, port, traffic, access)).await);
                let call = api.calls().pop().expect("a call");
                assert_eq!(call.sandbox, "abc");
                assert_eq!(call.value("e2b-sandbox-request-port"), Some(port.to_string()));
                let there = |token: Option<&str>| token.filter(|token| !token.is_empty()).map(str::to_owned);
                assert_eq!(call.value("e2b-traffic-access-token"), there(traffic));
                assert_eq!(call.value("e2b-envd-access-token"), there(access));
                assert_eq!(call.value("authorization"), None);
            }
        }
    }
}

#[tokio::test]
async fn tokens_that_grpc_cannot_carry_are_no_tokens() {
    let api = GrpcApi::start().await;
    let resumer = resumer(api.address);
    let long = vec![b'x'; 60_000];
    for token in [&b"\xff\xfe"[..], b"a\nb", b"a\r\nauthorization: x", b"a\0b", "t\u{f6}ken".as_bytes(), &long] {
        let mut wake = anybody();
        wake.credentials = Credentials {
            port: Port::ENVD,
            traffic_token: Some(Secret::new(token)),
            access_token: Some(Secret::new(token)),
        };
        api.resumes("abc", [runs()]);
        node(&resume(&resumer, &wake).await);
        let call = api.calls().pop().expect("a call");
        let ours = |entry: &KeyAndValueRef<'_>| match entry {
            KeyAndValueRef::Ascii(name, _) => name.as_str().starts_with("e2b-") || name.as_str() == "authorization",
            KeyAndValueRef::Binary(..) => true,
        };
        assert_eq!(call.metadata.iter().filter(ours).count(), 1, "{:?}", call.metadata);
    }
    assert_eq!(api.connections(), 1);
}

#[tokio::test]
async fn the_api_is_told_by_when_an_answer_is_wanted() {
    let api = GrpcApi::start().await;
    let microseconds = |value: &str| -> u64 {
        let (number, unit) = value.split_at(value.len() - 1);
        let number: u64 = number.parse().expect("a number");
        number
            * match unit {
                "u" => 1,
                "m" => 1_000,
                "S" => 1_000_000,
                other => panic!("{other}"),
            }
    };
    for limit in [LONG, Duration::from_mins(2), Duration::from_hours(1)] {
        let resumer = try_resumer(&settings(api.address), limit).expect("a resumer");
        api.resumes("abc", [Step::fails(Code::Unavailable, ""), runs()]);
        node(&resume(&resumer, &anybody()).await);
        let calls = api.calls();
        let told: Vec<_> = calls[calls.len() - 2..].iter().filter_map(|call| call.value("grpc-timeout")).collect();
        let [first, second] = &told[..] else { panic!("both tell it: {told:?}") };
        let limit = u64::try_from(limit.as_micros()).expect("short");
        let (first, second) = (microseconds(first), microseconds(second));
        // The second try has what the first left.
        assert!(second <= first && first <= limit && second > limit - 5_000_000, "{told:?}");
    }
}
