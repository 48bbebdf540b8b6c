//! What a catalog makes of the answer to a lookup.

use client_proxy::{
    sandbox::ports::{Located, WakeError},
    types::Reason,
};

use super::{
    CONNECT, GET, KEY, RUNNING, asleep, detail, facts, locate, open, resume, running, scripted_http::Step, wake,
};

#[tokio::test]
async fn a_running_sandbox_has_a_place_a_run_and_locks() {
    let step = Step::on(GET).header("x-api-key", KEY).json(200, RUNNING);
    let placement = running(locate(step).await);
    let envd = Some("envd-secret".to_owned());
    let start = Some("2026-08-01T00:00:00Z");
    assert_eq!(facts(&placement), (Some("10.0.0.5"), start, envd, false, None));

    let body = r#"{"sandboxID":"abc","state":"running","nodeIP":"fd00::1","envdAccessToken":"",
        "network":{"allowPublicTraffic":false},"trafficAccessToken":"t"}"#;
    let placement = running(detail(body).await);
    let traffic = Some("t".to_owned());
    assert_eq!(facts(&placement), (Some("[fd00::1]"), None, None, true, traffic));
}

#[tokio::test]
async fn a_missing_node_is_no_fault_but_a_wrong_one_is() {
    for node in ["", r#","nodeIP":null"#, r#","nodeIP":"""#, r#","nodeIP":"  ""#] {
        let body = format!(r#"{{"sandboxID":"abc","state":"running"{node}}}"#);
        assert_eq!(running(detail(&body).await).node, None, "{node}");
    }
    for node in [r#""no host""#, r#""10.0.0.256""#, r#""user@10.0.0.5""#, "5", "{}"] {
        let body = format!(r#"{{"sandboxID":"abc","state":"running","nodeIP":{node}}}"#);
        assert!(detail(&body).await.is_err(), "{node}");
    }
}

#[tokio::test]
async fn only_a_plain_yes_allows_traffic_to_wake() {
    for (lifecycle, barred) in [
        (r#","lifecycle":{"autoResume":true}"#, None),
        (r#","lifecycle":{"autoResume":false}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":null}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":"any"}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":1}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":null"#, Some(Reason::AutoResumeOff)),
        ("", Some(Reason::AutoResumeOff)),
    ] {
        let body =
            format!(r#"{{"sandboxID":"abc","state":"paused","network":{{"allowPublicTraffic":false}}{lifecycle}}}"#);
        let sleep = asleep(detail(&body).await);
        assert_eq!(sleep.barred, barred, "{lifecycle}");
        assert!(sleep.access.expect("locks are told").private);
    }
}

#[tokio::test]
async fn not_found_is_final_and_has_a_reason() {
    for (body, want) in [
        (r#"{"code":404,"message":"x","error_code":"killed"}"#, Reason::Killed),
        (r#"{"error_code":"expired"}"#, Reason::Expired),
        (r#"{"error_code":"filesystem_only"}"#, Reason::FilesystemOnly),
        (r#"{"error_code":"auto_resume_off"}"#, Reason::AutoResumeOff),
        (r#"{"error_code":"new_word"}"#, Reason::Unknown),
        (r#"{"error_code":5}"#, Reason::Unknown),
        (r#"{"code":404,"message":"x"}"#, Reason::Unknown),
    ] {
        let located = locate(Step::on(GET).json(404, body)).await;
        assert!(matches!(located, Ok(Located::Gone(reason)) if reason == want), "{body}");
        let outcome = resume(vec![Step::on(CONNECT).json(404, body)], wake(open(), 80, None, None));
        let outcome = outcome.await;
        assert!(matches!(outcome, Err(WakeError::Gone(reason)) if reason == want), "{body}");
    }
}

#[tokio::test]
async fn a_gateway_s_not_found_says_nothing_of_the_sandbox() {
    for body in ["<html>", "", "[]", "\"x\""] {
        let located = locate(Step::on(GET).json(404, body)).await;
        assert!(located.is_err(), "{body}: {located:?}");
        let outcome = resume(vec![Step::on(CONNECT).json(404, body)], wake(open(), 80, None, None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{body}: {outcome:?}");
    }
}

#[tokio::test]
async fn nonsense_is_a_fault_and_never_not_found() {
    for body in [
        "",
        "garbage",
        "null",
        "[]",
        "\"running\"",
        "{}",
        r#"{"sandboxID":"abc"}"#,
        r#"{"sandboxID":"abc","state":null}"#,
        r#"{"sandboxID":"abc","state":"pausing"}"#,
        r#"{"sandboxID":"abc","state":"Running"}"#,
        r#"{"sandboxID":"other","state":"running"}"#,
        r#"{"sandboxID":5,"state":"running"}"#,
        r#"{"sandboxID":"abc","state":"running","envdAccessToken":5}"#,
        r#"{"sandboxID":"abc","state":"running","network":{"allowPublicTraffic":"false"}}"#,
        r#"{"sandboxID":"abc","state":"running"} trailing"#,
        r#"{"sandboxID":"abc","state":"running""#,
        &"[".repeat(100_000),
        &format!(r#"{{"state":"running","startedAt":"{}"}}"#, "x".repeat(5000)),
    ] {
        let start = &body[..body.len().min(80)];
        let fault = detail(body).await.expect_err(start);
        assert!(fault.contains("GET /sandboxes/abc: "), "{fault}");
        assert!(fault.len() < 300, "{fault}");
    }
}

#[tokio::test]
async fn other_statuses_are_faults() {
    for status in [204, 206, 301, 302, 307, 400, 401, 403, 409, 410, 429, 500, 502, 503, 504] {
        let fault = locate(Step::on(GET).json(status, RUNNING)).await;
        let fault = fault.expect_err("no success");
        assert!(fault.contains(&format!("status {status}")), "{fault}");
    }
}
