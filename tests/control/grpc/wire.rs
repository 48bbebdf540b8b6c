//! A call as it is on the wire, byte by byte, and answers that no gRPC server would give.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use client_proxy::{
    sandbox::ports::{Resumer as _, WakeError},
    types::Placement,
};
use h2::{Reason, RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

use super::{anybody, fault, resume, resumer, settings, try_resumer};
use crate::wake;

/// What to answer: HTTP status, headers, data, trailers.
#[derive(Clone, Default)]
struct Script {
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    data: Vec<u8>,
    trailers: Option<&'static [(&'static str, &'static str)]>,
    reset: Option<Reason>,
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");
const OK: &[(&str, &str)] = &[("grpc-status", "0")];
/// `orchestrator_ip = "10.0.0.5"`, after a byte that says that it is not compressed and four of length.
const ANSWER: &[u8] = b"\x00\x00\x00\x00\x0a\x0a\x0810.0.0.5";

/// A call as it came.
#[derive(Debug)]
struct Seen {
    head: http::request::Parts,
    body: Vec<u8>,
}

struct Peer {
    address: SocketAddr,
    task: JoinHandle<()>,
    seen: std::sync::Arc<std::sync::Mutex<Vec<Seen>>>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = std::sync::Arc::<std::sync::Mutex<Vec<Seen>>>::default();
        let calls = seen.clone();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (script, calls) = (script.clone(), calls.clone());
                open.spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
                    let mut tasks = JoinSet::new();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let (script, calls) = (script.clone(), calls.clone());
                        tasks.spawn(async move {
                            let seen = read(request).await;
                            calls.lock().expect("no panic").push(seen);
                            play(script, respond);
                        });
                    }
                });
            }
        });
        Self { address, task, seen }
    }

    fn calls(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }
}

async fn read(request: Request<RecvStream>) -> Seen {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(data)) = stream.data().await {
        body.extend_from_slice(&data);
    }
    Seen { head, body }
}

fn play(script: Script, mut respond: SendResponse<Bytes>) {
    if script.status == 0 {
        return respond.send_reset(script.reset.expect("something"));
    }
    let mut head = Response::builder().status(script.status);
    for (name, value) in script.headers {
        head = head.header(*name, *value);
    }
    let ends = script.data.is_empty() && script.trailers.is_none() && script.reset.is_none();
    let mut stream = respond.send_response(head.body(()).expect("a head"), ends).expect("a client");
    if ends {
        return;
    }
    let is_last = script.trailers.is_none() && script.reset.is_none();
    let _ = stream.send_data(script.data.into(), is_last);
    if let Some(reason) = script.reset {
        stream.send_reset(reason);
    } else if let Some(trailers) = script.trailers {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        let _ = stream.send_trailers(trailers.iter().map(pair).collect::<HeaderMap>());
    }
}

/// What comes of a call that is answered so, and how many it took.
async fn told(script: Script) -> (Result<Placement, WakeError>, usize) {
    let peer = Peer::start(script).await;
    let outcome = resume(&resumer(peer.address), &anybody()).await;
    (outcome, peer.calls().len())
}

fn grpc(data: &[u8], trailers: &'static [(&'static str, &'static str)]) -> Script {
    Script { status: 200, headers: &[GRPC], data: data.to_vec(), trailers: Some(trailers), reset: None }
}

#[tokio::test]
async fn a_call_is_what_e2bs_api_reads() {
    let peer = Peer::start(grpc(ANSWER, OK)).await;
    let resumer = resumer(peer.address);
    let placement = resume(&resumer, &wake(None, 49983, Some("traffic"), Some("envd"))).await.expect("it runs");
    assert_eq!(placement.node.expect("a node").as_str(), "10.0.0.5");
    let call = peer.calls().pop().expect("a call");
    assert_eq!(call.head.method, "POST");
    assert_eq!(call.head.uri, *format!("http://{}/proxy.SandboxService/ResumeSandbox", peer.address));
    let field = |name: &str| {
        let mut all = call.head.headers.get_all(name).iter();
        let value = all.next().map(|value| value.to_str().expect("ASCII").to_owned());
        assert!(all.next().is_none(), "{name} twice");
        value.unwrap_or_default()
    };
    for (name, want) in [
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("e2b-sandbox-request-port", "49983"),
        ("e2b-traffic-access-token", "traffic"),
        ("e2b-envd-access-token", "envd"),
        ("authorization", ""),
        ("grpc-encoding", ""),
    ] {
        assert_eq!(field(name), want, "{name}");
    }
    assert!(field("user-agent").starts_with("client-proxy/"), "{}", field("user-agent"));
    assert!(!field("grpc-timeout").is_empty());
    // `sandbox_id = "abc"`.
    assert_eq!(call.body, b"\x00\x00\x00\x00\x05\x0a\x03abc");
}

#[tokio::test]
async fn fields_that_are_not_known_yet_do_no_harm() {
    // Field 2 and 15 besides: a number, a text.
    let answer = b"\x00\x00\x00\x00\x10\x10\x05\x0a\x0810.0.0.5\x7a\x02hi";
    let (outcome, _) = told(grpc(answer, OK)).await;
    assert_eq!(outcome.expect("it runs").node.expect("a node").as_str(), "10.0.0.5");
    // An empty message: no node.
    let (outcome, _) = told(grpc(b"\0\0\0\0\0", OK)).await;
    assert!(outcome.expect("it runs").node.is_none());
}

#[tokio::test]
async fn nonsense_is_a_fault() {
    let huge = [&b"\0\x00\x10\x00\x00"[..], &vec![b'x'; 0x10_0000]].concat();
    let bomb = [&b"\0\xff\xff\xff\xff"[..], &vec![b'x'; 0x1_0000]].concat();
    for data in [
        &b""[..],
        b"\0\0\0\0\x01\xff",
        b"\0\0\0\0\x02\x0a\xff",
        b"\0\0\0\0\x03\x0a\x01\xff",
        b"\x01\0\0\0\x01x",
        b"\x05\0\0\0\x00",
        b"\0\0\0",
        &huge,
        &bomb,
    ] {
        let (outcome, calls) = told(grpc(data, OK)).await;
        fault(outcome);
        assert_eq!(calls, 1);
    }
    for trailers in [&[][..], &[("grpc-status", "99")], &[("grpc-status", "x")], &[("grpc-status", "")]] {
        fault(told(grpc(ANSWER, trailers)).await.0);
    }
    for headers in [&[("content-type", "text/html")][..], &[]] {
        fault(told(Script { status: 200, headers, data: b"<html>".to_vec(), ..Script::default() }).await.0);
    }
}

#[tokio::test]
async fn the_details_of_a_status_are_not_read() {
    // Not base64: tonic would panic.
    let bad: &[_] = &[("grpc-status", "5"), ("grpc-status-details-bin", "!"), ("grpc-message", "%")];
    let (outcome, _) = told(grpc(b"", bad)).await;
    assert!(matches!(outcome, Err(WakeError::Gone(_))), "{outcome:?}");
    let alone: &[_] = &[GRPC, ("grpc-status", "5"), ("grpc-status-details-bin", "!")];
    let (outcome, _) = told(Script { status: 200, headers: alone, ..Script::default() }).await;
    assert!(matches!(outcome, Err(WakeError::Gone(_))), "{outcome:?}");
    let good: &[_] = &[("grpc-status", "0"), ("grpc-status-details-bin", "!")];
    assert!(told(grpc(ANSWER, good)).await.0.is_ok());
}

#[tokio::test]
async fn the_status_of_a_gateway_is_not_the_apis() {
    for (status, calls) in
        [(301, 1), (400, 1), (401, 1), (403, 1), (404, 1), (500, 1), (429, 2), (502, 2), (503, 2), (504, 2)]
    {
        let script = Script { status, headers: &[("location", "http://secret/")], ..Script::default() };
        let (outcome, made) = told(script).await;
        let text = fault(outcome);
        assert!(text.contains(&status.to_string()) || status == 401, "{text}");
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(made, calls, "{status}");
    }
    // With a gRPC status it is the API's, whatever HTTP's says.
    let script = Script { status: 403, headers: &[GRPC, ("grpc-status", "5")], ..Script::default() };
    assert!(matches!(told(script).await.0, Err(WakeError::Gone(_))));
}

#[tokio::test]
async fn a_stream_that_is_reset_is_no_answer_of_the_api() {
    for reason in [
        Reason::REFUSED_STREAM,
        Reason::INTERNAL_ERROR,
        Reason::CANCEL,
        Reason::PROTOCOL_ERROR,
        // tonic makes these two the statuses of the team's limit and of a denial.
        Reason::ENHANCE_YOUR_CALM,
        Reason::INADEQUATE_SECURITY,
    ] {
        for status in [0, 200] {
            let script = Script { status, headers: &[GRPC], reset: Some(reason), ..Script::default() };
            let (outcome, calls) = told(script).await;
            fault(outcome);
            assert!((1..=2).contains(&calls), "{calls}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_is_left() {
    let peer = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = peer.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let (socket, _) = peer.accept().await.expect("a connection");
        let mut connection = h2::server::handshake(socket).await.expect("HTTP/2");
        let (_, mut respond) = connection.accept().await.expect("a call").expect("a whole head");
        let head = Response::builder().header(GRPC.0, GRPC.1).body(()).expect("a head");
        let _stream = respond.send_response(head, false).expect("a client");
        while let Some(Ok(_)) = connection.accept().await {}
    });
    let resumer = try_resumer(&settings(address), Duration::from_millis(300)).expect("a resumer");
    let text = fault(resumer.resume(&anybody()).await);
    assert!(text.contains("resume.call_timeout"), "{text}");
    serving.abort();
}
