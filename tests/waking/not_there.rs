//! Node mode: the node that the catalog named does not have the sandbox, or cannot be reached.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;

use crate::support::{
    Answer, Proxy, REMEMBER, Server, answer,
    control_plane::{ControlPlane, Sandbox, Step},
    nodes_at, request,
    wire::{HOST, Head, Node, OK, get},
};

/// What a node says that does not have `sandbox`, padded with spaces to `length`.
fn disown(sandbox: &str, length: usize) -> Response<Full<Bytes>> {
    let mut text = format!(r#"{{"sandboxId":"{sandbox}","message":"The sandbox was not found","code":502}}"#);
    while text.len() < length {
        text.push(' ');
    }
    let mut answer = answer(502, text);
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json; charset=utf-8"));
    answer
}

/// A node that has every sandbox and repeats what it was sent.
async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    match request.into_body().collect().await {
        Ok(body) => answer(200, body.to_bytes()),
        Err(_) => answer(500, "half a body"),
    }
}

/// A node that reads everything and has no sandbox.
async fn empty(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let host = request.headers()["host"].to_str().expect("ASCII").to_owned();
    let sandbox = host.split(['-', '.']).nth(1).expect("a sandbox").to_owned();
    let _ = request.into_body().collect().await;
    disown(&sandbox, 0)
}

/// `POST` of so many bytes.
async fn post(proxy: &Proxy, sandbox: &str, length: usize) -> Answer {
    let body = Bytes::from(vec![b'x'; length]);
    proxy.send(request("POST", 8000, sandbox, "/").body(Full::new(body)).expect("a request")).await
}

/// A lookup that finds the sandbox running on this node from now on.
fn moves(sandbox: &Sandbox, node: &'static str) -> Step {
    let sandbox = sandbox.clone();
    Step::Truly.doing(move || {
        sandbox.running(node);
    })
}

/// A proxy and, where the catalog points first, a node without any sandbox; the good node has the same
/// port on 127.0.0.2.
async fn world(more: &str) -> (ControlPlane, Server, Server, Proxy) {
    let control = ControlPlane::start().await;
    let bad = Server::start(empty).await;
    let good = Server::on(&format!("127.0.0.2:{}", bad.address.port()), echo);
    let proxy = Proxy::start(&control.config(&format!("{}{more}", nodes_at(bad.address.port()))));
    (control, bad, good, proxy)
}

#[tokio::test]
async fn a_sandbox_that_sleeps_meanwhile_is_woken_and_gets_the_same_request() {
    for length in [0, 1, 20_000, 64 * 1024] {
        let (control, bad, good, proxy) = world(REMEMBER).await;
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1");
        let sleeps = sandbox.clone();
        let paused = Step::Truly.doing(move || {
            sleeps.paused("127.0.0.2");
        });
        sandbox.looks_up([Step::Truly, paused]).wakes([Step::Truly]);
        let answer = post(&proxy, "abc", length).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, length));
        assert!(answer.header("server-timing").contains("resume;dur="), "{:?}", answer.headers);
        assert_eq!((bad.requests(), good.requests()), (1, 1));
        let id = |node: &Server| node.seen.lock().expect("no panic")[0].headers["x-request-id"].clone();
        assert_eq!(id(&bad), id(&good), "the same request");
        assert_eq!(proxy.count("client_proxy_retries_total{reason=\"not_there\"}").await, 1);
        proxy.is_idle().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_moved_is_followed_with_the_same_request() {
    let post = |framing: &str, body: &str| format!("POST /x HTTP/1.1\r\nHost: {HOST}\r\n{framing}\r\n\r\n{body}");
    let chunks = "3\r\nabc\r\n0\r\n\r\n";
    for (request, body) in [
        (get("/x?y"), ""),
        (post("Content-Length: 3", "abc"), "abc"),
        (post("Transfer-Encoding: chunked", chunks), chunks),
    ] {
        let old = Node::start().await;
        let new = Node::on(&format!("127.0.0.2:{}", old.address.port())).await;
        let control = ControlPlane::start().await;
        let proxy = Proxy::start(&control.config(&format!("{}{REMEMBER}", nodes_at(old.address.port()))));
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1").looks_up([Step::Truly, moves(&sandbox, "127.0.0.2")]);
        let (mut client, mut upstream, seen) = old.exchange(&proxy, &request).await;
        assert_eq!(upstream.exactly(body.len()).await, body.as_bytes());
        let text = r#"{"sandboxId":"abc","message":"The sandbox was not found","code":502}"#;
        let kind = "application/json; charset=utf-8";
        let length = text.len();
        let head = format!("HTTP/1.1 502 Bad Gateway\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        upstream.write(head + text).await;
        let mut upstream = new.accept().await;
        assert_eq!(upstream.head().await, seen.0, "the same head");
        assert_eq!(upstream.exactly(body.len()).await, body.as_bytes(), "and the same body");
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        // From now on it is known.
        client.write(get("/next")).await;
        assert_eq!(Head(upstream.head().await).line(), "GET /next HTTP/1.1");
        assert!(old.nobody_knocks());
    }
}

#[tokio::test]
async fn a_sandbox_whose_place_did_not_change_said_it_itself() {
    let (control, bad, _good, proxy) = world(REMEMBER).await;
    control.sandbox("abc").running("127.0.0.1").looks_up([Step::Truly, Step::Truly]);
    for asked in 1..=5 {
        let answer = post(&proxy, "abc", 10).await;
        assert_eq!((answer.status.as_u16(), &answer.body), (502, &disown_body("abc").await));
        assert!(!answer.headers.contains_key("proxy-status"), "it is not our own answer");
        assert_eq!(bad.requests(), asked, "nothing is sent twice");
    }
    proxy.is_idle().await;
}

async fn disown_body(sandbox: &str) -> Bytes {
    disown(sandbox, 0).into_body().collect().await.expect("infallible").to_bytes()
}

#[tokio::test]
async fn an_application_s_imitation_costs_one_lookup_per_negative_ttl() {
    let (control, _bad, _good, proxy) = world("cache.ttl = \"60s\"\ncache.negative_ttl = \"100ms\"\n").await;
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let start = tokio::time::Instant::now();
    let mut asked = 0_usize;
    while sandbox.lookups() < 4 {
        assert_eq!(proxy.get(8000, "abc", "/").await.status, 502);
        asked += 1;
    }
    // The first one finds it, the second one doubts it; two more need two more times.
    assert!(start.elapsed() >= Duration::from_millis(200), "{asked} requests in {:?}", start.elapsed());
    assert!(asked >= 3);
    proxy.is_idle().await;
}

#[tokio::test]
async fn what_is_not_exactly_the_node_s_answer_is_the_application_s() {
    let variant = |request: Request<Incoming>| async move {
        let mut answer = disown("abc", 0);
        match request.uri().path() {
            "/other-sandbox" => return disown("other", 0),
            "/long" => return disown("abc", 1025),
            "/status" => *answer.status_mut() = http::StatusCode::NOT_FOUND,
            "/type" => {
                answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            }
            "/charset" => {
                let value = HeaderValue::from_static("application/json; charset=UTF-8");
                answer.headers_mut().insert("content-type", value);
            }
            "/words" => *answer.body_mut() = Full::new(r#"{"sandboxId":"abc","message":"port is not open"}"#.into()),
            "/no-json" => *answer.body_mut() = Full::new("was not found".into()),
            path => panic!("{path}"),
        }
        answer
    };
    let control = ControlPlane::start().await;
    let node = Server::start(variant).await;
    let proxy = Proxy::start(&control.config(&format!("{}{REMEMBER}", nodes_at(node.address.port()))));
    control.sandbox("abc").running("127.0.0.1").looks_up([Step::Truly]);
    for path in ["/other-sandbox", "/long", "/status", "/type", "/charset", "/words", "/no-json"] {
        let answer = proxy.get(8000, "abc", path).await;
        assert_eq!(answer.status.as_u16(), if path == "/status" { 404 } else { 502 }, "{path}");
        assert!(!answer.headers.contains_key("proxy-status"), "{path}");
        assert_eq!(answer.header("content-length"), answer.body.len().to_string(), "{path}");
    }
    assert_eq!(node.requests(), 7);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_chunked_imitation_is_the_application_s() {
    let control = ControlPlane::start().await;
    let node = Node::start().await;
    let proxy = Proxy::start(&control.config(&format!("{}{REMEMBER}", nodes_at(node.address.port()))));
    control.sandbox("abc").running("127.0.0.1").looks_up([Step::Truly]);
    let text = r#"{"sandboxId":"abc","message":"The sandbox was not found","code":502}"#;
    let (mut client, mut upstream, _) = node.exchange(&proxy, get("/")).await;
    let head =
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: application/json; charset=utf-8\r\ntransfer-encoding: chunked";
    upstream.write(format!("{head}\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n", text.len())).await;
    let answer = client.message().await;
    assert_eq!((answer.head.status(), answer.text()), (502, text.to_owned()));
    assert!(node.nobody_knocks(), "nothing is sent again");
    drop(client);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_head_request_goes_to_where_the_sandbox_is_now_though_its_answer_has_no_body() {
    for moved in [true, false] {
        let (control, bad, good, proxy) = world(REMEMBER).await;
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1");
        let second = if moved { moves(&sandbox, "127.0.0.2") } else { Step::Truly };
        sandbox.looks_up([Step::Truly, second]);
        let head = request("HEAD", 8000, "abc", "/").body(Full::default()).expect("a request");
        let answer = proxy.send(head).await;
        assert_eq!(answer.status.as_u16(), if moved { 200 } else { 502 });
        assert_eq!((answer.header("proxy-status"), bad.requests(), good.requests()), ("", 1, usize::from(moved)));
    }
}

#[tokio::test]
async fn a_long_body_is_not_sent_twice() {
    let (control, bad, good, proxy) = world(REMEMBER).await;
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    sandbox.looks_up([Step::Truly, moves(&sandbox, "127.0.0.2")]);
    let answer = post(&proxy, "abc", 64 * 1024 + 1).await;
    // "Not found" would be a lie about a sandbox that is elsewhere.
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    assert!(["1", "2"].contains(&answer.header("retry-after")), "{answer:?}");
    assert_eq!((bad.requests(), good.requests()), (1, 0));
    // It was looked for, and the next one goes where it is.
    assert_eq!(post(&proxy, "abc", 64 * 1024 + 1).await.status, 200);
    assert_eq!((bad.requests(), good.requests()), (1, 1));
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_left_for_the_one_that_the_catalog_names_now() {
    let (control, _bad, _good, proxy) = world(REMEMBER).await;
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.3");
    sandbox.looks_up([Step::Truly, moves(&sandbox, "127.0.0.2")]);
    let answer = post(&proxy, "abc", 100_000).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 100_000), "nothing was sent: any body will do");
    assert_eq!(proxy.count("client_proxy_upstream_connections_total{result=\"refused\"}").await, 1);
    // Both dead, and both the same.
    let sandbox = control.sandbox("dead");
    sandbox.running("127.0.0.3");
    sandbox.looks_up([Step::Truly, moves(&sandbox, "127.0.0.4"), Step::Truly]);
    control.sandbox("same").running("127.0.0.3").looks_up([Step::Truly, Step::Truly]);
    for id in ["dead", "same"] {
        let answer = post(&proxy, id, 10).await;
        assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
        assert!(!answer.header("retry-after").is_empty());
        assert!(!answer.text().contains("127.0.0"), "an address is nobody's business: {}", answer.text());
    }
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_sandbox_paused_again_right_after_its_wake_is_woken_once_more_at_most() {
    let (control, bad, good, proxy) = world(REMEMBER).await;
    let sandbox = control.sandbox("restless");
    sandbox.paused("127.0.0.1").wakes([Step::Briefly, Step::Briefly]);
    let answer = post(&proxy, "restless", 10).await;
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(bad.requests(), 2);

    let sandbox = control.sandbox("abc");
    let awake = sandbox.clone();
    let stays = Step::Truly.doing(move || {
        awake.paused("127.0.0.2");
    });
    sandbox.paused("127.0.0.1").wakes([Step::Briefly, stays]);
    let answer = post(&proxy, "abc", 10).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "xxxxxxxxxx".into()));
    assert_eq!((bad.requests(), good.requests()), (3, 1));
    proxy.is_idle().await;
}
