//! Tokens by client credentials (RFC 6749 §4.4): when one is asked for, how, and what comes of failures.

use std::{sync::Arc, time::Duration};

use client_proxy::{
    config,
    control::{GrpcResumer, SetupError},
    sandbox::ports::{Resumer as _, WakeError},
    types::Secret,
};
use tokio::task::JoinSet;
use tonic::Code;

use super::{LONG, anybody, fault, node, resume, runs, settings, try_resumer};
use crate::{
    scripted_http::{ScriptedHttp, Step as Token},
    support::{
        eventually,
        grpc_api::{GrpcApi, Step},
    },
    url,
};

const ID: &str = "an id";
const SECRET: &str = "s:e/cret";
/// `an+id:s%3Ae%2Fcret` in base64.
const BASIC: &str = "Basic YW4raWQ6cyUzQWUlMkZjcmV0";
const PATH: &str = "POST /oauth2/token";

/// The request for a token, as it must come.
fn asked() -> Token {
    Token::on(PATH)
        .header("authorization", BASIC)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .body("grant_type=client_credentials&scope=sandboxes%3Alifecycle")
}

/// Answered with this token, good for so many seconds.
fn gives(token: &str, seconds: u32) -> Token {
    asked().json(200, &format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{seconds}}}"#))
}

struct Setup {
    api: GrpcApi,
    tokens: ScriptedHttp,
    resumer: Arc<GrpcResumer>,
}

impl Setup {
    async fn new(steps: impl IntoIterator<Item = Token>) -> Self {
        let (api, tokens) = (GrpcApi::start().await, ScriptedHttp::start(steps).await);
        let mut settings = settings(api.address);
        settings.oauth = Some(config::OAuth {
            client_id: ID.into(),
            client_secret: Secret::new(SECRET),
            token_url: url(&format!("http://user:hunter2@{}/oauth2/token#here", tokens.address())),
        });
        let resumer = Arc::new(try_resumer(&settings, LONG).expect("a resumer"));
        Self { api, tokens, resumer }
    }

    /// A call that succeeds, and the token that it had.
    async fn token(&self) -> String {
        self.api.resumes("abc", [runs()]);
        node(&resume(&self.resumer, &anybody()).await);
        self.shown().pop().expect("a call")
    }

    /// The tokens of all calls so far.
    fn shown(&self) -> Vec<String> {
        let token = |value: String| value.strip_prefix("Bearer ").expect("a bearer token").to_owned();
        self.api.calls().iter().map(|call| token(call.value("authorization").expect("a token"))).collect()
    }

    /// A call that fails before it is made for want of a token: what operators are told.
    async fn no_token(&self) -> String {
        let before = self.api.calls().len();
        let text = fault(resume(&self.resumer, &anybody()).await);
        assert_eq!(self.api.calls().len(), before, "{text}");
        assert!(text.contains("no token from the OAuth server"), "{text}");
        for secret in [SECRET, BASIC, &BASIC[6..], "s%3Ae%2Fcret", "hunter2", "127.0.0.1"] {
            assert!(!text.contains(secret), "{text}");
        }
        text
    }
}

/// So much time passes in an instant.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Meanwhile no time passes, however long it takes: the clock would run only if nothing were to do.
async fn at_once<T>(deeds: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let done = deeds.await;
    busy.abort();
    tokio::time::resume();
    done
}

#[tokio::test]
async fn a_token_is_asked_for_once_and_shown_with_every_call() {
    let setup = Setup::new([gives("t-1", 3600)]).await;
    for _ in 0..3 {
        assert_eq!(setup.token().await, "t-1");
    }
    // Twenty minutes later, too.
    later(Duration::from_mins(20)).await;
    assert_eq!(setup.token().await, "t-1");
}

#[tokio::test]
async fn many_calls_wait_for_one_token() {
    let setup = Setup::new([gives("t-1", 3600)]).await;
    setup.api.always("abc", runs());
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let resumer = setup.resumer.clone();
        calls.spawn(async move { resume(&resumer, &anybody()).await.is_ok() });
    }
    assert_eq!(calls.join_all().await, [true; 50]);
    assert_eq!(setup.shown(), ["t-1"; 50]);
}

#[tokio::test]
async fn a_new_token_is_fetched_ahead_while_the_old_one_serves() {
    let setup = Setup::new([gives("t-1", 3600), asked().hang(), gives("t-2", 3600)]).await;
    assert_eq!(setup.token().await, "t-1");
    later(Duration::from_secs(3539)).await;
    assert_eq!(setup.token().await, "t-1");
    // In the last minute. The server of tokens hangs: nobody waits for it, and nobody else asks.
    later(Duration::from_secs(2)).await;
    for _ in 0..3 {
        assert_eq!(setup.token().await, "t-1");
    }
    later(Duration::from_secs(5)).await;
    setup.tokens.peer_left().await;
    // Then it is asked again, still in the background.
    later(Duration::from_secs(1)).await;
    assert_eq!(setup.token().await, "t-1");
    eventually("the new one is there", async || setup.token().await == "t-2").await;
}

#[tokio::test]
async fn a_token_is_not_used_beyond_its_end() {
    let setup = Setup::new([gives("t-1", 300), gives("t-2", 3600)]).await;
    assert_eq!(setup.token().await, "t-1");
    later(Duration::from_mins(5)).await;
    assert_eq!(setup.token().await, "t-2");
}

#[tokio::test]
async fn a_token_that_the_api_refuses_is_replaced_once() {
    let setup = Setup::new([gives("t-1", 3600), gives("t-2", 3600)]).await;
    setup.api.resumes("abc", [Step::fails(Code::Unauthenticated, "expired"), runs()]);
    node(&resume(&setup.resumer, &anybody()).await);
    assert_eq!(setup.shown(), ["t-1", "t-2"]);
    assert_eq!(setup.token().await, "t-2");
}

#[tokio::test]
async fn an_api_that_refuses_every_token_causes_no_flood_of_requests_for_them() {
    let setup = Setup::new([gives("t-1", 3600), gives("t-2", 3600), gives("t-3", 3600)]).await;
    setup.api.always("abc", Step::fails(Code::Unauthenticated, "who are you? t-1 t-2"));
    let refused = async || {
        let text = fault(resume(&setup.resumer, &anybody()).await);
        assert!(text.contains("UNAUTHENTICATED") && !text.contains("t-"), "{text}");
    };
    at_once(async {
        for _ in 0..3 {
            refused().await;
        }
    })
    .await;
    assert_eq!(setup.shown(), ["t-1", "t-2", "t-2", "t-2", "t-2", "t-2"]);
    later(Duration::from_millis(600)).await;
    at_once(refused()).await;
    assert_eq!(setup.shown()[6..], ["t-2", "t-3"]);
}

#[tokio::test]
async fn a_cut_and_a_refused_token_are_both_got_over_in_one_call() {
    let setup = Setup::new([gives("t-1", 3600), gives("t-2", 3600)]).await;
    setup.api.resumes("abc", [Step::Cuts, Step::fails(Code::Unauthenticated, ""), runs()]);
    node(&resume(&setup.resumer, &anybody()).await);
    assert_eq!(setup.shown(), ["t-1", "t-1", "t-2"]);
}

#[tokio::test]
async fn every_answer_that_is_no_token_is_a_fault() {
    let token = |fields: &str| format!(r#"{{"access_token":{fields}}}"#);
    for (answer, want) in [
        (asked().json(500, SECRET), "status 500"),
        (asked().json(400, r#"{"error":"invalid_client"}"#), "status 400 (are id and secret right?)"),
        (asked().json(401, BASIC), "status 401"),
        (asked().json(201, &token("\"t-1\"")), "status 201"),
        (asked().raw("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"), "status 302"),
        (asked().json(200, ""), "not JSON"),
        (asked().json(200, SECRET), "not JSON"),
        (asked().json(200, "{}"), "no access_token"),
        (asked().json(200, &token("5")), "no access_token"),
        (asked().json(200, &token("\"\"")), "is none"),
        (asked().json(200, &token(r#""a\r\nb: c""#)), "is none"),
        (asked().json(200, &token("\"t\u{f6}ken\"")), "is none"),
        (asked().json(200, &token(r#""t","token_type":"mac""#)), "token_type"),
        (asked().endless(), "longer than"),
        (asked().raw("garbage\r\n\r\n"), ""),
        (asked().raw(""), ""),
    ] {
        let setup = Setup::new([answer]).await;
        let text = setup.no_token().await;
        assert!(text.contains(want), "{want}: {text}");
    }
}

#[tokio::test]
async fn a_token_server_that_hangs_is_left() {
    let setup = Setup::new([asked().hang(), gives("t-1", 3600)]).await;
    let resumer = setup.resumer.clone();
    let call = tokio::spawn(async move { fault(resumer.resume(&anybody()).await) });
    eventually("it is asked", async || setup.tokens.requests() == 1).await;
    later(Duration::from_secs(6)).await;
    let text = call.await.expect("no panic");
    assert!(text.contains("no token") && text.contains("timed out"), "{text}");
    setup.tokens.peer_left().await;
    later(Duration::from_secs(1)).await;
    assert_eq!(setup.token().await, "t-1");
}

#[tokio::test]
async fn nobody_is_at_the_token_url() {
    let setup = Setup::new([]).await;
    let mut settings = settings(setup.api.address);
    let free = crate::support::free_port("127.0.0.1");
    settings.oauth = Some(config::OAuth {
        client_id: ID.into(),
        client_secret: Secret::new(SECRET),
        token_url: url(&format!("http://user:hunter2@127.0.0.1:{free}/?key=hunter2")),
    });
    let resumer = try_resumer(&settings, LONG).expect("a resumer");
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("no token") && text.contains("refused") && !text.contains("hunter2"), "{text}");
    let shown = format!("{resumer:?} {settings:?}");
    assert!(!shown.contains(SECRET) && !format!("{resumer:?}").contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn a_failure_is_remembered_for_half_a_second() {
    let setup = Setup::new([asked().json(500, "{}"), asked().json(503, "{}"), gives("t-1", 3600)]).await;
    at_once(async {
        for _ in 0..5 {
            assert!(setup.no_token().await.contains("status 500"));
        }
    })
    .await;
    later(Duration::from_millis(500)).await;
    at_once(async {
        for _ in 0..5 {
            assert!(setup.no_token().await.contains("status 503"));
        }
    })
    .await;
    later(Duration::from_millis(500)).await;
    assert_eq!(setup.token().await, "t-1");
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_tried_with_every_call() {
    let setup = Setup::new([gives("t-1", 300), asked().json(500, "{}"), gives("t-2", 3600)]).await;
    assert_eq!(setup.token().await, "t-1");
    later(Duration::from_secs(250)).await;
    at_once(async {
        for _ in 0..5 {
            assert_eq!(setup.token().await, "t-1");
        }
        eventually("it was tried", async || setup.tokens.requests() == 2).await;
        for _ in 0..5 {
            assert_eq!(setup.token().await, "t-1");
        }
    })
    .await;
    later(Duration::from_millis(600)).await;
    eventually("the new one is there", async || setup.token().await == "t-2").await;
}

#[tokio::test]
async fn the_words_of_the_teams_limit_do_not_show_the_token() {
    let setup = Setup::new([gives("t-1-secret", 3600)]).await;
    setup.api.resumes("abc", [Step::fails(Code::ResourceExhausted, "limit of t-1-secret reached")]);
    let outcome = resume(&setup.resumer, &anybody()).await;
    assert!(matches!(&outcome, Err(WakeError::Exhausted(text)) if &**text == "limit of *** reached"), "{outcome:?}");
}

#[tokio::test]
async fn the_time_for_a_token_is_part_of_the_calls() {
    let setup = Setup::new([asked().hang()]).await;
    let mut settings = settings(setup.api.address);
    settings.oauth = Some(config::OAuth {
        client_id: ID.into(),
        client_secret: Secret::new(SECRET),
        token_url: url(&format!("http://{}/oauth2/token", setup.tokens.address())),
    });
    let resumer = try_resumer(&settings, Duration::from_millis(300)).expect("a resumer");
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("resume.call_timeout"), "{text}");
    assert!(setup.api.calls().is_empty());
}

#[tokio::test]
async fn a_token_url_must_be_one_of_http() {
    let mut settings = settings("127.0.0.1:1");
    for text in ["mailto:a@b", "ftp://host/token"] {
        settings.oauth =
            Some(config::OAuth { client_id: ID.into(), client_secret: Secret::new(SECRET), token_url: url(text) });
        assert!(matches!(try_resumer(&settings, LONG), Err(SetupError::Url)), "{text}");
    }
}
