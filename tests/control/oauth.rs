//! Tokens for the API: asked for once, kept, renewed ahead, and never shown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use client_proxy::{
    config::{GrpcResume, OAuth},
    sandbox::ports::{Resumer as _, WakeError},
    types::Secret,
};
use tokio::task::JoinSet;
use tonic::Code;

use super::{
    grpc::{resumer, settings, wake},
    grpc_api::{GrpcApi, Say},
    scripted_http::{ScriptedHttp, Step},
    support::{Server, answer, control_plane::Gate, eventually},
    url,
};

const LIMIT: Duration = Duration::from_secs(10);
const SECRET: &str = "s3cret+/:";
const POST: &str = "POST /token";

fn with_tokens(api: &GrpcApi, server: std::net::SocketAddr) -> GrpcResume {
    let oauth = OAuth {
        client_id: "me:you".into(),
        client_secret: Secret::new(SECRET),
        token_url: url(&format!("http://{server}/token")),
    };
    GrpcResume { oauth: Some(oauth), ..settings(api.address) }
}

fn bearer(api: &GrpcApi) -> Vec<String> {
    api.calls().into_iter().map(|call| call.authorization.expect("a token")).collect()
}

#[tokio::test]
async fn a_token_is_asked_for_as_the_rfc_says_and_kept() {
    // `me:you` and the secret, form-encoded, then Base64.
    let basic = "Basic bWUlM0F5b3U6czNjcmV0JTJCJTJGJTNB";
    let form = "grant_type=client_credentials&scope=sandboxes%3Alifecycle";
    let server = ScriptedHttp::start([Step::on(POST)
        .header("authorization", basic)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form)
        .json(200, r#"{"access_token":"one","token_type":"bearer","expires_in":3600}"#)])
    .await;
    let api = GrpcApi::always(Say::Node("10.0.0.5"));
    let resumer = resumer(&with_tokens(&api, server.address()), LIMIT);
    for _ in 0..3 {
        assert!(resumer.resume(&wake()).await.is_ok());
    }
    assert_eq!(bearer(&api), ["Bearer one"; 3]);
}

#[tokio::test]
async fn however_many_need_one_it_is_asked_for_once() {
    let (gate, asked) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), asked.clone());
    let server = Server::start(move |_| {
        let (gate, number) = (held.clone(), counted.fetch_add(1, SeqCst));
        async move {
            gate.opened().await;
            answer(200, format!("{{\"access_token\":\"t{number}\",\"expires_in\":\"3600\"}}"))
        }
    })
    .await;
    let api = GrpcApi::always(Say::Node("10.0.0.5"));
    let resumer = Arc::new(resumer(&with_tokens(&api, server.address), LIMIT));
    let mut calls: JoinSet<_> = (0..50)
        .map(|_| {
            let resumer = resumer.clone();
            async move { resumer.resume(&wake()).await }
        })
        .collect();
    eventually("it is asked", async || asked.load(SeqCst) == 1).await;
    gate.open();
    while let Some(outcome) = calls.join_next().await {
        outcome.expect("no panic").expect("woken");
    }
    assert_eq!((bearer(&api), asked.load(SeqCst)), (vec!["Bearer t0".to_owned(); 50], 1));
}

#[tokio::test]
async fn the_old_token_serves_while_the_next_is_asked_for() {
    let (gate, asked) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), asked.clone());
    let server = Server::start(move |_| {
        let (gate, number) = (held.clone(), counted.fetch_add(1, SeqCst));
        async move {
            if number > 0 {
                gate.opened().await;
            }
            // Renewed after four seconds of five.
            answer(200, format!("{{\"access_token\":\"t{number}\",\"expires_in\":5}}"))
        }
    })
    .await;
    let api = GrpcApi::always(Say::Node("10.0.0.5"));
    let resumer = resumer(&with_tokens(&api, server.address), LIMIT);
    let began = tokio::time::Instant::now();
    while asked.load(SeqCst) < 2 {
        resumer.resume(&wake()).await.expect("woken");
        assert!(began.elapsed() < Duration::from_secs(6), "it is never renewed");
    }
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
    // While the next one hangs.
    resumer.resume(&wake()).await.expect("woken");
    assert_eq!(bearer(&api).last().map(String::as_str), Some("Bearer t0"));
    gate.open();
    eventually("the next one is used", async || {
        resumer.resume(&wake()).await.expect("woken");
        bearer(&api).last().map(String::as_str) == Some("Bearer t1")
    })
    .await;
}

#[tokio::test]
async fn a_server_that_fails_is_an_outage_told_without_a_secret() {
    for step in [
        Step::on(POST).json(500, "{}"),
        Step::on(POST).json(401, r#"{"error":"invalid_client","secret":"s3cret"}"#),
        Step::on(POST).json(302, "{}"),
        Step::on(POST).json(200, r#"{"access_token":"#),
        Step::on(POST).json(200, r#"{"token":"s3cret"}"#),
        Step::on(POST).json(200, r#"{"access_token":"s3cret\n"}"#),
        Step::on(POST).json(200, r#"{"access_token":""}"#),
        Step::on(POST).json(200, r#"{"access_token":"s3cret","token_type":"mac"}"#),
        Step::on(POST).endless(),
        Step::on(POST).raw("HTTP/1.1 200 OK\r\n"),
    ] {
        let server = ScriptedHttp::start([step]).await;
        let api = GrpcApi::start([]);
        let resumer = resumer(&with_tokens(&api, server.address()), LIMIT);
        // The second is told what the first was, and asks nobody.
        for _ in 0..2 {
            let outcome = resumer.resume(&wake()).await;
            let Err(WakeError::Unavailable(why)) = outcome else { panic!("{outcome:?}") };
            assert!(why.contains("no OAuth token") && !why.contains("s3cret"), "{why}");
        }
        assert!(!format!("{resumer:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn a_failure_is_forgotten_soon() {
    let server =
        ScriptedHttp::start([Step::on(POST).json(503, "{}"), Step::on(POST).json(200, r#"{"access_token":"one"}"#)])
            .await;
    let api = GrpcApi::start([Say::Node("10.0.0.5")]);
    let resumer = resumer(&with_tokens(&api, server.address()), LIMIT);
    let mut failures = 0;
    while resumer.resume(&wake()).await.is_err() {
        failures += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((2..100).contains(&failures), "{failures}");
}

#[tokio::test]
async fn a_token_that_the_api_refuses_is_replaced_once() {
    let token = |name: &str| Step::on(POST).json(200, &format!("{{\"access_token\":\"{name}\",\"expires_in\":3600}}"));
    let server = ScriptedHttp::start([token("one"), token("two"), token("three")]).await;
    let refuses = || Say::Status(Code::Unauthenticated, "not that one");
    let api = GrpcApi::start([refuses(), Say::Node("10.0.0.5"), refuses(), refuses()]);
    let resumer = resumer(&with_tokens(&api, server.address()), LIMIT);
    assert!(resumer.resume(&wake()).await.is_ok());
    assert_eq!(bearer(&api), ["Bearer one", "Bearer two"]);
    let outcome = resumer.resume(&wake()).await;
    let Err(WakeError::Unavailable(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("refuses the OAuth token"), "{why}");
    assert_eq!(bearer(&api)[2..], ["Bearer two", "Bearer three"]);
}
