//! What a resumer asks, whom it refuses, and what it makes of the answers.

use client_proxy::{
    sandbox::ports::{Sleep, WakeError},
    types::{Access, Denial, Reason, Secret},
};

use super::{CONNECT, GET, KEY, PAUSED, RUNNING, facts, open, resume, scripted_http::Step, wake};

#[tokio::test]
async fn a_wake_is_marked_and_tells_where_the_sandbox_runs() {
    let connected = r#"{"sandboxID":"abc","templateID":"base","clientID":"c","envdVersion":"0.6.7",
        "nodeIP":"10.0.0.6","startedAt":"later","trafficAccessToken":"new"}"#;
    for status in [200, 201] {
        let step = Step::on(CONNECT)
            .header("x-api-key", KEY)
            .header("x-client-proxy-wake", "1")
            .header("content-type", "application/json")
            .body(r#"{"timeout":600}"#)
            .json(status, connected);
        let locks =
            Access { envd_token: Some(Secret::new("e")), private: true, traffic_token: Some(Secret::new("old")) };
        let sleep = Some(Sleep { barred: None, access: Some(locks) });
        let placement = resume(vec![step], wake(sleep, 80, Some("old"), None)).await;
        let placement = placement.expect("woken");
        let (envd, traffic) = (Some("e".to_owned()), Some("new".to_owned()));
        assert_eq!(facts(&placement), (Some("10.0.0.6"), Some("later"), envd, true, traffic));
    }
}

#[tokio::test]
async fn what_the_connect_answer_lacks_is_looked_up_once() {
    let bare = r#"{"sandboxID":"abc","templateID":"base","clientID":"c","envdVersion":"0.6.7"}"#;
    let placed = r#"{"sandboxID":"abc","nodeIP":"10.0.0.6"}"#;
    let nowhere = r#"{"sandboxID":"abc","state":"running","startedAt":"later"}"#;
    let steps = |answer: &str, then: Step| vec![Step::on(CONNECT).json(201, answer), then];
    let asked = || wake(open(), 80, None, None);

    let placement = resume(steps(bare, Step::on(GET).json(200, RUNNING)), asked()).await;
    let placement = placement.expect("woken");
    let envd = Some("envd-secret".to_owned());
    let start = Some("2026-08-01T00:00:00Z");
    assert_eq!(facts(&placement), (Some("10.0.0.5"), start, envd, false, None));

    // What was asked last is newest.
    let placement = resume(steps(placed, Step::on(GET).json(200, RUNNING)), asked()).await;
    let placement = placement.expect("woken");
    assert_eq!(facts(&placement).0, Some("10.0.0.5"));

    // Nobody names a node: an address without {node} can do without.
    let placement = resume(steps(bare, Step::on(GET).json(200, nowhere)), asked()).await;
    assert_eq!(placement.expect("woken").node, None);

    // The place is known; no failure of the second look takes that away.
    for then in [
        Step::on(GET).json(500, "{}"),
        Step::on(GET).json(200, "garbage"),
        Step::on(GET).json(200, PAUSED),
        Step::on(GET).raw(""),
    ] {
        let placement = resume(steps(placed, then), asked()).await.expect("woken");
        assert_eq!(facts(&placement), (Some("10.0.0.6"), None, None, false, None));
    }

    for then in [
        Step::on(GET).json(500, "{}"),
        Step::on(GET).json(200, PAUSED),
        Step::on(GET).json(200, r#"{"sandboxID":"other","state":"running"}"#),
    ] {
        let outcome = resume(steps(bare, then), asked()).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
    let killed = Step::on(GET).json(404, r#"{"error_code":"killed"}"#);
    let outcome = resume(steps(placed, killed), asked()).await;
    assert!(matches!(outcome, Err(WakeError::Gone(Reason::Killed))), "{outcome:?}");
}

#[tokio::test]
async fn refusals_of_a_wake_are_told_apart() {
    let message = "x".repeat(600);
    for (status, body, want) in [
        (403, "{}".to_owned(), "Denied(NotAllowed)"),
        (409, "{}".to_owned(), "Transitioning"),
        (429, r#"{"code":429,"message":"too\tmany"}"#.to_owned(), r#"Exhausted("toomany")"#),
        (429, format!(r#"{{"message":"{message}"}}"#), &format!("Exhausted({:?})", &message[..500])),
        (429, format!(r#"{{"message":"bad {KEY}"}}"#), r#"Exhausted("bad ***")"#),
        (429, "<html>".to_owned(), r#"Exhausted("too many sandboxes are running")"#),
        (429, r#"{"message":"\n"}"#.to_owned(), r#"Exhausted("too many sandboxes are running")"#),
    ] {
        let outcome = resume(vec![Step::on(CONNECT).json(status, &body)], wake(open(), 80, None, None));
        let error = outcome.await.expect_err("no success");
        assert_eq!(format!("{error:?}"), want, "{status} {body}");
    }
    for status in [202, 204, 302, 400, 401, 410, 422, 500, 502, 503, 504] {
        let step = Step::on(CONNECT).json(status, r#"{"sandboxID":"abc","nodeIP":"10.0.0.5"}"#);
        let error = resume(vec![step], wake(open(), 80, None, None)).await;
        let error = error.expect_err("no success");
        let WakeError::Unavailable(text) = &error else {
            panic!("{status}: {error:?}");
        };
        assert!(text.contains(&format!("status {status}")), "{text}");
    }
    for body in ["", "garbage", "[]", r#"{"sandboxID":"other","nodeIP":"10.0.0.5"}"#, r#"{"nodeIP":5}"#] {
        let outcome = resume(vec![Step::on(CONNECT).json(201, body)], wake(open(), 80, None, None));
        let outcome = outcome.await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{body}: {outcome:?}");
    }
}

#[tokio::test]
async fn who_may_not_wake_causes_no_wake() {
    let locked = |barred| {
        Some(Sleep {
            barred,
            access: Some(Access {
                envd_token: Some(Secret::new("e")),
                private: true,
                traffic_token: Some(Secret::new("t")),
            }),
        })
    };
    let shut = Some(Sleep { barred: None, access: Some(Access { private: true, ..Access::default() }) });
    // No step: any request would fail the test.
    for (wake, want) in [
        (wake(locked(None), 80, None, None), Denial::TrafficTokenMissing),
        (wake(locked(None), 80, Some("x"), Some("e")), Denial::TrafficTokenInvalid),
        (wake(locked(None), 49983, Some("t"), None), Denial::AccessTokenInvalid),
        (wake(locked(None), 49983, None, Some("x")), Denial::AccessTokenInvalid),
        (wake(shut, 80, Some(""), None), Denial::TrafficTokenInvalid),
    ] {
        let outcome = resume(vec![], wake).await;
        assert!(matches!(outcome, Err(WakeError::Denied(denial)) if denial == want), "{outcome:?}");
    }
    for reason in [Reason::AutoResumeOff, Reason::FilesystemOnly] {
        let outcome = resume(vec![], wake(locked(Some(reason)), 80, Some("t"), None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(barred)) if barred == reason), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_the_catalog_did_not_tell_is_asked_before_a_wake() {
    let untold = Sleep { barred: None, access: None };
    for sleep in [None, Some(untold)] {
        let asked = |access| wake(sleep.clone(), 49983, None, access);

        let placement = resume(vec![Step::on(GET).json(200, RUNNING)], asked(None)).await;
        assert_eq!(facts(&placement.expect("it runs")).0, Some("10.0.0.5"));

        let outcome = resume(vec![Step::on(GET).json(200, PAUSED)], asked(Some("wrong"))).await;
        assert!(matches!(outcome, Err(WakeError::Denied(Denial::AccessTokenInvalid))), "{outcome:?}");

        let connected = r#"{"nodeIP":"10.0.0.6","startedAt":"later"}"#;
        let steps =
            vec![Step::on(GET).header("x-api-key", KEY).json(200, PAUSED), Step::on(CONNECT).json(201, connected)];
        let placement = resume(steps, asked(Some("envd-secret"))).await.expect("woken");
        let envd = Some("envd-secret".to_owned());
        assert_eq!(facts(&placement), (Some("10.0.0.6"), Some("later"), envd, false, None));

        let barred = r#"{"sandboxID":"abc","state":"paused"}"#;
        let outcome = resume(vec![Step::on(GET).json(200, barred)], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(Reason::AutoResumeOff))), "{outcome:?}");

        let expired = r#"{"error_code":"expired"}"#;
        let outcome = resume(vec![Step::on(GET).json(404, expired)], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(Reason::Expired))), "{outcome:?}");

        let outcome = resume(vec![Step::on(GET).json(503, "{}")], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
}
