use std::time::Duration;

use axum::{Router, http::Method};
use bytes::{BufMut as _, Bytes};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::*;

#[derive(Deserialize)]
struct Wish {
    #[serde(default)]
    say: String,
    #[serde(default)]
    wait: u64,
}

async fn echo((): (), _: Call, wish: Wish) -> Result<Value, Error> {
    sleep(Duration::from_secs(wish.wait)).await;
    match wish.say.as_str() {
        "gone" => Err(Error::new(Code::NotFound, "it is gone")),
        say => Ok(json!({ "said": say })),
    }
}

async fn letters((): (), call: Call, wish: Wish) -> Result<impl Stream<Item = Result<Value, Error>> + use<>, Error> {
    if wish.say.is_empty() {
        return Err(Error::new(Code::InvalidArgument, "nothing to say"));
    }
    let letters: Vec<char> = wish.say.chars().collect();
    let letters = stream::iter(letters).then(move |letter| async move {
        sleep(Duration::from_secs(wish.wait)).await;
        match letter {
            '!' => Err(Error::new(Code::Aborted, "shouted at")),
            letter => Ok(json!({ "letter": letter })),
        }
    });
    Ok(keep_alive(letters, call.keepalive, || Ok(json!({ "keepalive": {} }))))
}

async fn join((): (), _: Call, mut wishes: Messages<Wish>) -> Result<Value, Error> {
    let mut all = String::new();
    while let Some(wish) = wishes.next().await? {
        all.push_str(&wish.say);
    }
    Ok(json!({ "all": all }))
}

fn frame(flags: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![flags];
    frame.put_u32(u32::try_from(message.len()).expect("short"));
    frame.put_slice(message);
    frame
}

/// Flags and message of each frame.
fn frames(mut all: &[u8]) -> Vec<(u8, Value)> {
    use bytes::Buf as _;
    let mut found = Vec::new();
    while !all.is_empty() {
        let flags = all.get_u8();
        let length = all.get_u32() as usize;
        found.push((flags, serde_json::from_slice(&all[..length]).expect("JSON")));
        all.advance(length);
    }
    found
}

async fn ask(path: &str, body: Vec<u8>, headers: &[(&str, &str)]) -> (u16, HeaderMap, Bytes) {
    let router = Router::new()
        .route("/echo", unary(SHORT, echo))
        .route("/letters", server_stream(SHORT, letters))
        .route("/join", client_stream(SHORT, join));
    let mut request = Request::builder().method(Method::POST).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router.oneshot(request.body(Body::from(body)).expect("a request")).await.expect("an answer");
    let (head, body) = answer.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.expect("a body").to_bytes())
}

async fn ask_unary(body: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let headers: Vec<_> = [("content-type", "application/json")].iter().chain(headers).copied().collect();
    let (status, head, body) = ask("/echo", body.into(), &headers).await;
    assert_eq!(head["content-type"], "application/json");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

async fn ask_stream(path: &str, body: Vec<u8>, headers: &[(&str, &str)]) -> Vec<(u8, Value)> {
    let headers: Vec<_> = [("content-type", STREAM)].iter().chain(headers).copied().collect();
    let (status, head, body) = ask(path, body, &headers).await;
    assert_eq!((status, &head["content-type"]), (200, &STREAM.parse().expect("a value")));
    frames(&body)
}

fn told(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn unary_errors_are_the_status_and_a_body() {
    assert_eq!(ask_unary(r#"{"say":"x"}"#, &[]).await, (200, json!({ "said": "x" })));
    let (status, body) = ask_unary(r#"{"say":"gone"}"#, &[]).await;
    assert_eq!((status, body), (404, json!({ "code": "not_found", "message": "it is gone" })));
    for (body, headers, want) in [
        ("", &[][..], (400, "invalid_argument")),
        ("[7", &[], (400, "invalid_argument")),
        ("{}", &[("connect-protocol-version", "2")], (400, "invalid_argument")),
        (&" ".repeat(SHORT + 1), &[], (429, "resource_exhausted")),
        ("{}", &[("content-encoding", "gzip")], (501, "unimplemented")),
        (r#"{"wait":2}"#, &[("connect-timeout-ms", "1000")], (504, "deadline_exceeded")),
    ] {
        let (status, answer) = ask_unary(body, headers).await;
        assert_eq!((status, answer["code"].as_str().expect("a code")), want, "{body} {headers:?}");
    }
    assert_eq!(ask_unary("{}", &[("content-encoding", "identity")]).await.0, 200);
}

#[tokio::test]
async fn other_media_are_refused_and_told_what_would_do() {
    for (path, want) in [("/echo", UNARY), ("/letters", STREAM), ("/join", STREAM)] {
        for kind in ["application/proto", "application/grpc", "text/plain", "application/jsonx"] {
            let (status, head, _) = ask(path, b"{}".to_vec(), &[("content-type", kind)]).await;
            assert_eq!((status, head["accept-post"].to_str().expect("text")), (415, want), "{path} {kind}");
        }
    }
    let (status, ..) = ask("/echo", b"{}".to_vec(), &[("content-type", "application/json; charset=utf-8")]).await;
    assert_eq!(status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_stream_ends_with_a_frame_that_says_how() {
    let wish = |text: &str| frame(0, text.as_bytes());
    let all = ask_stream("/letters", wish(r#"{"say":"ab"}"#), &[]).await;
    assert_eq!(all, [(0, json!({ "letter": "a" })), (0, json!({ "letter": "b" })), (2, json!({}))]);
    let all = ask_stream("/letters", wish(r#"{"say":"a!b"}"#), &[]).await;
    assert_eq!(all[1], (2, json!({ "error": { "code": "aborted", "message": "shouted at" } })));
    assert_eq!(all.len(), 2);
    let late = [("connect-timeout-ms", "25000")];
    let all = ask_stream("/letters", wish(r#"{"say":"abc","wait":10}"#), &late).await;
    assert_eq!((all.len(), told(&all[2].1)), (3, "deadline_exceeded"));
    let alive = [("keepalive-ping-interval", "20")];
    let all = ask_stream("/letters", wish(r#"{"say":"a","wait":30}"#), &alive).await;
    assert_eq!(all, [(0, json!({ "keepalive": {} })), (0, json!({ "letter": "a" })), (2, json!({}))]);
}

#[tokio::test]
async fn broken_frames_are_told_apart() {
    let long = u32::try_from(SHORT + 1).expect("a length").to_be_bytes();
    for (body, want) in [
        (frame(0, b"{}"), "invalid_argument"),
        (Vec::new(), "invalid_argument"),
        (frame(0, b"{"), "invalid_argument"),
        (frame(1, b"{}"), "internal"),
        (frame(4, b"{}"), "invalid_argument"),
        (frame(0, b"{}")[..6].to_vec(), "invalid_argument"),
        ([frame(0, br#"{"say":"a"}"#), frame(0, b"{}")].concat(), "invalid_argument"),
        ([&[0], &long[..], b"{}"].concat(), "resource_exhausted"),
    ] {
        let all = ask_stream("/letters", body.clone(), &[]).await;
        assert_eq!((all.len(), all[0].0, told(&all[0].1)), (1, 2, want), "{body:?}");
    }
}

#[tokio::test]
async fn a_client_stream_is_read_message_by_message() {
    let body = [frame(0, br#"{"say":"a"}"#), frame(0, br#"{"say":"b"}"#)].concat();
    let all = ask_stream("/join", body.clone(), &[]).await;
    assert_eq!(all, [(0, json!({ "all": "ab" })), (2, json!({}))]);
    let all = ask_stream("/join", body[..body.len() - 1].to_vec(), &[]).await;
    assert_eq!((all.len(), told(&all[0].1)), (1, "invalid_argument"));
    let all = ask_stream("/join", body, &[("connect-content-encoding", "gzip")]).await;
    assert_eq!((all.len(), told(&all[0].1)), (1, "unimplemented"));
}

/// A caller that stops in the middle, and one that has nothing more to say for a while.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_message_is_not_waited_for_without_end() {
    let unfinished = |begin: &'static [u8]| {
        let begin = stream::iter([Ok::<_, io::Error>(Bytes::from_static(begin))]);
        Body::from_stream(begin.chain(stream::pending()))
    };
    let fault = Reading::new(unfinished(b"{"), SHORT).whole().await.expect_err("late");
    assert_eq!(fault.code, Code::DeadlineExceeded);
    let mut messages = Messages::<Wish>::new(unfinished(b"\0\0\0\0\x02{"), SHORT);
    assert_eq!(messages.next().await.err().map(|fault| fault.code), Some(Code::DeadlineExceeded));
    let mut messages = Messages::<Wish>::new(unfinished(b"\0\0\0\0\x02{}"), SHORT);
    messages.next().await.expect("whole").expect("a message");
    assert!(tokio::time::timeout(Duration::from_hours(10), messages.next()).await.is_err(), "between two messages");
}
