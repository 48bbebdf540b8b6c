//! Every kind of call, through the proxy and back.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, metadata::MetadataValue};

use crate::{
    notes::{Note, Notes, Service, note, value},
    support::{
        DIRECT, PATIENCE, Proxy,
        control_plane::{ControlPlane, Gate, Step},
        eventually,
        wire::{HOST, direct_mode, node_mode},
        within_a_second,
    },
};

async fn world() -> (Service, Proxy, Notes) {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, ""));
    let notes = Notes::connect(proxy.address, HOST).await;
    (service, proxy, notes)
}

#[tokio::test]
async fn each_kind_of_call_is_answered() {
    let (service, _proxy, mut notes) = world().await;
    assert_eq!(notes.echo("hello").await.expect("an answer"), "hello");
    let mut list = notes.list(Note { count: 1000, ..note("one of") }).await.expect("an answer");
    for count in 0..1000 {
        assert_eq!(list.message().await.expect("a note").map(|note| note.count), Some(count));
    }
    assert!(list.message().await.expect("an end").is_none());
    let sum = notes.sum(vec![note("a"), note("b"), note("c")]).await.expect("an answer");
    assert_eq!((&*sum.text, sum.count), ("abc", 3));
    assert_eq!(service.seen.connections(), 1);
}

#[tokio::test]
async fn in_a_conversation_each_note_is_answered_before_the_next_is_written() {
    let (_service, proxy, mut notes) = world().await;
    let (say, mut answers) = notes.talk().await.expect("an answer");
    for text in ["one", "two", "three"] {
        say.send(note(text)).expect("a call under way");
        let answer = timeout(PATIENCE, answers.message()).await.expect("at once").expect("well").expect("one");
        assert_eq!(answer.text, format!("re: {text}"));
    }
    drop(say);
    assert!(answers.message().await.expect("an end").is_none());
    assert!(answers.trailers().await.expect("an end").is_some());
    drop((notes, answers));
    proxy.is_idle().await;
}

#[tokio::test]
async fn megabytes_go_both_ways() {
    let (_service, _proxy, mut notes) = world().await;
    let data = Bytes::from(vec![7; 3 << 20]);
    let sent = Note { data: data.clone(), ..note("large") };
    let back = notes.unary("Echo", Request::new(sent)).await.expect("an answer").into_inner();
    assert!(back.data == data);
}

#[tokio::test]
async fn metadata_and_failures_arrive_as_they_were_told() {
    let (service, _proxy, mut notes) = world().await;
    let mut request = Request::new(note("hello"));
    request.metadata_mut().insert("x-asked", "text".parse().expect("ASCII"));
    request.metadata_mut().insert_bin("x-asked-bin", MetadataValue::from_bytes(&[0, 255]));
    request.set_timeout(Duration::from_secs(5));
    let response = notes.unary("Echo", request).await.expect("an answer");
    assert_eq!(value(response.metadata(), "x-answered"), "text");
    let bytes = response.metadata().get_bin("x-answered-bin").and_then(|value| value.to_bytes().ok());
    assert_eq!(bytes.as_deref(), Some(&[0, 255][..]));
    {
        let heads = service.seen.heads.lock().expect("no panic");
        let head = heads.last().expect("one");
        assert_eq!(head.headers["te"], "trailers");
        assert!(head.headers.contains_key("grpc-timeout") && head.headers.contains_key("x-forwarded-for"));
        assert_eq!(
            (head.uri.to_string(), &head.method),
            (format!("http://{HOST}/test.Notes/Echo"), &http::Method::POST)
        );
        assert!(!head.headers.contains_key("host"));
    }
    // The whole answer is one head, which ends the stream.
    let status = notes.echo("fail").await.expect_err("a failure");
    assert_eq!(
        (status.code(), status.message(), status.details()),
        (Code::FailedPrecondition, "as planned", &b"why"[..])
    );
    assert_eq!(value(status.metadata(), "x-more"), "told");
    let status = notes.unary("Nothing", Request::new(note(""))).await.expect_err("a failure");
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_call_to_a_paused_sandbox_is_held_and_answered_after_its_wake() {
    for direct in [false, true] {
        let (service, control) = (Service::start(), ControlPlane::start().await);
        let port = service.address.port();
        let mode = if direct { DIRECT.into() } else { crate::support::nodes_at(port) };
        let proxy = Proxy::start(&control.config(&mode));
        let gate = Gate::closed();
        control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let mut notes = Notes::connect(proxy.address, &format!("{port}-abc.example.test")).await;
        let mut other = notes.clone();
        let (sum, echo, ()) = tokio::join!(notes.sum(vec![note("a"), note("b")]), other.echo("hello"), async {
            proxy.metric_becomes("client_proxy_held_requests", 2.0).await;
            assert_eq!(service.seen.connections(), 0);
            gate.open();
        });
        assert_eq!((&*sum.expect("an answer").text, &*echo.expect("an answer")), ("ab", "hello"));
        assert_eq!((control.sandbox("abc").connects(), service.seen.connections()), (1, 1), "direct: {direct}");
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_is_at_its_end_within_a_second_and_the_others_go_on() {
    let service = Service::start();
    let proxy = Proxy::start(&direct_mode(""));
    let host = format!("{}-abc.example.test", service.address.port());
    let mut notes = Notes::connect(proxy.address, &host).await;
    let (say, mut answers) = notes.talk().await.expect("an answer");
    within_a_second("the sandbox hears of it", async || {
        let before = (service.seen.calls(), service.seen.cancelled());
        let mut hanging = notes.clone();
        let hanging = tokio::spawn(async move { hanging.unary("Hang", Request::new(note(""))).await });
        let mut talking = notes.talk().await.expect("an answer");
        talking.0.send(note("hello")).expect("a call under way");
        talking.1.message().await.expect("an answer");
        eventually("both are there", async || service.seen.calls() == before.0 + 2).await;
        let start = Instant::now();
        hanging.abort();
        drop(talking);
        eventually("both are over", async || service.seen.cancelled() == before.1 + 2).await;
        start.elapsed()
    })
    .await;
    say.send(note("still there")).expect("a call under way");
    assert_eq!(answers.message().await.expect("well").expect("one").text, "re: still there");
    assert_eq!(service.seen.connections(), 1);
}
