//! One request in either version of HTTP, and what its answer must be in the caller's medium.

use bytes::Bytes;
use http::{Request, request::Builder};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::{
    Answer, Proxy,
    http2::{AnyBody, Http2, full},
    request, send,
};

/// The version that the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http1,
    Http2,
}

pub(crate) const BOTH: [Over; 2] = [Over::Http1, Over::Http2];

pub(crate) type Fields<'a> = &'a [(&'a str, &'a str)];

/// A request for the sandbox's port with these fields, without a body.
pub(crate) async fn ask(proxy: &Proxy, over: Over, line: (&str, u16, &str, &str), fields: Fields<'_>) -> Answer {
    let (_, port, sandbox, path) = line;
    let request = with(line, fields);
    match over {
        Over::Http1 => send(proxy.address, request.body(Full::default()).expect("a request")).await,
        Over::Http2 => Http2::connect(proxy.address).await.send(by_http2(request, port, sandbox, path)).await,
    }
}

/// The same, not yet sent.
pub(crate) fn with((method, port, sandbox, path): (&str, u16, &str, &str), fields: Fields<'_>) -> Builder {
    fields.iter().fold(request(method, port, sandbox, path), |request, (name, value)| request.header(*name, *value))
}

fn by_http2(request: Builder, port: u16, sandbox: &str, path: &str) -> Request<AnyBody> {
    let mut request = request.body(full("")).expect("a request");
    request.headers_mut().remove("host");
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = format!("http://{port}-{sandbox}.example.test{path}").parse().expect("a URI");
    request
}

/// `GET /` of port 8000 with these fields over HTTP/1.1.
pub(crate) async fn get(proxy: &Proxy, sandbox: &str, fields: Fields<'_>) -> Answer {
    ask(proxy, Over::Http1, ("GET", 8000, sandbox, "/"), fields).await
}

/// The code that the proxy tells in `Proxy-Status`, and its reason; empty where the answer is the sandbox's.
pub(crate) fn told(answer: &Answer) -> &str {
    let details = answer.header("proxy-status").split_once("details=\"").map_or("", |(_, details)| details);
    details.trim_end_matches('"')
}

/// Status and code.
pub(crate) fn outcome(answer: &Answer) -> (u16, &str) {
    (answer.status.as_u16(), told(answer))
}

/// What the caller reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Json,
    Page,
    Text,
    Connect,
    /// Of this content type.
    Stream(&'static str),
    Grpc(&'static str),
}

/// One of the proxy's own answers, as its table has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) reason: Option<&'static str>,
    pub(crate) connect: &'static str,
    pub(crate) grpc: &'static str,
    pub(crate) retry: bool,
}

impl Own {
    /// Checks the whole answer.
    pub(crate) fn is(self, answer: &Answer, medium: Medium) {
        let about = format!("{medium:?} {self:?}: {answer:?}");
        let Self { status, code, reason, connect, grpc, retry } = self;
        let streams = matches!(medium, Medium::Stream(_) | Medium::Grpc(_));
        assert_eq!(answer.status.as_u16(), if streams { 200 } else { status }, "{about}");
        let details = reason.map_or(code.to_owned(), |reason| format!("{code}; reason={reason}"));
        assert_eq!(told(answer), details, "{about}");
        assert!(answer.header("proxy-status").starts_with("client-proxy; error="), "{about}");
        assert_eq!(answer.header("cache-control"), "no-store", "{about}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{about}");
        assert!(!answer.header("x-request-id").is_empty(), "{about}");
        let after: Option<u64> = answer
            .headers
            .get("retry-after")
            .map(|after| after.to_str().expect("ASCII").parse().unwrap_or_else(|_| panic!("no seconds: {after:?}")));
        assert_eq!(after.is_some(), retry, "{about}");
        assert!(after.is_none_or(|after| (1..=450).contains(&after)), "{about}");
        let content_type = match medium {
            Medium::Json => "application/json; charset=utf-8",
            Medium::Page => "text/html; charset=utf-8",
            Medium::Text => "text/plain; charset=utf-8",
            Medium::Connect => "application/json",
            Medium::Stream(own) | Medium::Grpc(own) => own,
        };
        assert_eq!(answer.header("content-type"), content_type, "{about}");
        match medium {
            Medium::Json => {
                assert_eq!(answer.error(), code, "{about}");
                assert_eq!(answer.json()["reason"], json!(reason), "{about}");
            }
            Medium::Connect => error_of_connect(&answer.json(), connect, code, reason, &about),
            Medium::Stream(_) => {
                let [(2, end)] = &messages(&answer.body)[..] else { panic!("not one EndStream: {about}") };
                let end: Value = serde_json::from_slice(end).expect("JSON");
                error_of_connect(&end["error"], connect, code, reason, &about);
            }
            Medium::Grpc(_) => {
                assert_eq!((answer.header("grpc-status"), answer.body.len()), (grpc, 0), "{about}");
                assert!(!answer.header("grpc-message").is_empty(), "{about}");
            }
            Medium::Text => assert!(answer.text().starts_with(&format!("{code}: ")), "{about}"),
            Medium::Page => {
                let text = answer.text();
                assert!(text.starts_with("<!doctype html>") && text.contains(&format!("{status} {code}")), "{about}");
            }
        }
    }
}

fn error_of_connect(error: &Value, word: &str, code: &str, reason: Option<&str>, about: &str) {
    assert_eq!((&error["code"], &error["error"]), (&json!(word), &json!(code)), "{about}");
    assert_eq!(error["reason"], json!(reason), "{about}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{about}");
}

/// Flags and contents of each message of a Connect stream; it must end between two.
pub(crate) fn messages(mut stream: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    while !stream.is_empty() {
        let (head, rest) = stream.split_at(5);
        let length = u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize;
        assert!(rest.len() >= length, "an unfinished message: {} of {length} bytes", rest.len());
        let (message, rest) = rest.split_at(length);
        messages.push((head[0], message.to_vec()));
        stream = rest;
    }
    messages
}

/// Makes the proxy ask again for the sandbox.
pub(crate) async fn forget(proxy: &Proxy, sandbox: &str) {
    let request = Request::delete(format!("/sandboxes/{sandbox}")).header("host", "admin");
    send(proxy.admin, request.body(bytes("")).expect("a request")).await;
}

/// Bytes as a body.
pub(crate) fn bytes(text: impl Into<Bytes>) -> Full<Bytes> {
    Full::new(text.into())
}
