//! HTTP/2 with clients, by prior knowledge.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::support::{
    PATIENCE, Proxy, REMEMBER, Raw, Server, World, answer,
    control_plane::{ControlPlane, Gate, Step},
    http2::{AnyBody, Http2, full, request},
    nodes_at,
    wire::{Head, Node, OK, node_mode},
    within_a_second,
};

/// A body whose pieces are sent by hand.
pub(crate) fn by_hand() -> (mpsc::UnboundedSender<Bytes>, AnyBody) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let pieces = stream::unfold(receiver, async |mut receiver: mpsc::UnboundedReceiver<Bytes>| {
        receiver.recv().await.map(|piece| (Ok(Frame::data(piece)), receiver))
    });
    (sender, StreamBody::new(Box::pin(pieces)).boxed())
}

#[tokio::test]
async fn one_connection_carries_many_requests_at_once_to_http_1_1() {
    let node = reader().await;
    let proxy = Proxy::start(&node_mode(node.address, ""));
    let client = Http2::connect(proxy.address).await;
    let mut crowd = JoinSet::new();
    for n in 0..100_usize {
        let client = client.clone();
        crowd.spawn(async move {
            let answer = client.send(request("POST", "abc", &format!("/{n}"), full(vec![7; n * 100]))).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (200, format!("POST /{n} {}", n * 100)));
        });
    }
    crowd.join_all().await;
    assert_eq!(proxy.count("client_proxy_connections{protocol=\"http2\"}").await, 1);
    for head in node.seen.lock().expect("no panic").iter() {
        assert_eq!(head.version, http::Version::HTTP_11);
        assert_eq!(head.headers["host"], "8000-abc.example.test");
    }
    drop(client);
    proxy.is_idle().await;
}

/// A node that reads what it is sent, and says how much that was.
async fn reader() -> Server {
    Server::start(async |request| {
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        answer(200, format!("{} {} {}", head.method, head.uri, body.len()))
    })
    .await
}

#[tokio::test]
async fn a_held_stream_blocks_no_other() {
    const UPLOAD: usize = 2 << 20;
    let (control, node, gate) = (ControlPlane::start().await, reader().await, Gate::closed());
    control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    control.sandbox("awake").running("127.0.0.1");
    let proxy = Proxy::start(&control.config(&format!("{}{REMEMBER}", nodes_at(node.address.port()))));
    let client = Http2::connect(proxy.address).await;
    // More than the connection would take if what is held counted against the others.
    let mut held = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        held.spawn(async move { client.send(request("POST", "asleep", "/", full(vec![7; UPLOAD]))).await });
    }
    proxy.metric_becomes("client_proxy_held_requests", 100.0).await;
    for _ in 0..3 {
        let answer = client.send(request("POST", "awake", "/", full(vec![7; UPLOAD]))).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, format!("POST / {UPLOAD}")));
    }
    assert_eq!(client.get("awake", "/").await.text(), "GET / 0");
    assert_eq!(proxy.count("client_proxy_held_requests").await, 100);
    gate.open();
    for answer in held.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, format!("POST / {UPLOAD}")));
    }
}

#[tokio::test]
async fn who_gives_up_many_streams_at_once_keeps_the_connection() {
    let world = World::new(REMEMBER).await;
    let gate = Gate::closed();
    world.control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("awake").running("127.0.0.1");
    let client = Http2::connect(world.proxy.address).await;
    for round in 1..=3 {
        let mut asked: Vec<_> =
            (0..100).map(|_| Box::pin(client.begin(request("GET", "asleep", "/", full(""))))).collect();
        for asked in &mut asked {
            assert!(futures_util::poll!(asked).is_pending());
        }
        world.proxy.metric_becomes("client_proxy_held_requests", 100.0).await;
        drop(asked);
        assert_eq!(client.get("awake", "/").await.text(), "hello", "round {round}");
        world.proxy.metric_becomes("client_proxy_held_requests", 0.0).await;
    }
    assert_eq!(world.control.sandbox("asleep").connects(), 1, "and the wake goes on");
    gate.open();
}

#[tokio::test]
async fn a_stream_that_is_given_up_is_given_up_at_the_sandbox_within_a_second() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    for (step, path) in ["before the answer", "in the answer", "in the upload"].iter().zip(["/a", "/b", "/c"]) {
        within_a_second(step, async || {
            let (pieces, body) = by_hand();
            let body = if *step == "in the upload" { body } else { full("") };
            let mut asked = Box::pin(client.begin(request("POST", "abc", path, body)));
            assert!(futures_util::poll!(&mut asked).is_pending());
            let mut upstream = node.accept().await;
            upstream.head().await;
            if *step == "in the answer" {
                upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
                let mut answer = asked.await.expect("an answer");
                answer.body_mut().frame().await.expect("a frame").expect("data");
                let start = Instant::now();
                drop(answer);
                upstream.is_left().await;
                return start.elapsed();
            }
            if *step == "in the upload" {
                pieces.send("half".into()).expect("a client");
                upstream.read_until("half").await;
            }
            let start = Instant::now();
            drop(asked);
            upstream.is_left().await;
            start.elapsed()
        })
        .await;
    }
    // The connection has had no part in it.
    let (answer, ()) = tokio::join!(client.get("abc", "/"), async {
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write(OK).await;
    });
    assert_eq!(answer.text(), "ok");
    drop(client);
    proxy.is_idle().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_reset_of_its_stream_alone() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    let ask = async |path: &str| client.begin(request("GET", "abc", path, full(""))).await.expect("an answer");
    let (mut whole, mut its) = tokio::join!(ask("/whole"), async {
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha").await;
        upstream
    });
    for said in ["Content-Length: 9\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
        let (mut broken, upstream) = tokio::join!(ask("/broken"), async {
            let mut upstream = node.accept().await;
            upstream.head().await;
            upstream.write(format!("HTTP/1.1 200 OK\r\n{said}")).await;
            upstream
        });
        assert_eq!(broken.body_mut().frame().await.expect("a frame").expect("data").into_data().expect("data"), "half");
        drop(upstream);
        let end = timeout(PATIENCE, broken.body_mut().frame()).await.expect("an end in time");
        assert!(matches!(end, Some(Err(_))), "{said}");
    }
    its.write("lf").await;
    let body = timeout(PATIENCE, whole.body_mut().collect()).await.expect("in time").expect("a body").to_bytes();
    assert_eq!(body, "half");
}

#[tokio::test]
async fn trailers_of_chunks_are_trailers_of_streams_and_1xx_are_not_passed_on() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let client = Http2::connect(proxy.address).await;
    let (answer, ()) = tokio::join!(client.begin(request("GET", "abc", "/", full(""))), async {
        let mut upstream = node.accept().await;
        let seen = Head(upstream.head().await);
        assert!(!seen.has("transfer-encoding") && !seen.has("connection"), "{}", seen.0);
        upstream.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
        upstream
            .write(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\nConnection: keep-alive\r\n\
                 Keep-Alive: timeout=5\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
            )
            .await;
    });
    let answer = answer.expect("an answer");
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    let body = answer.into_body().collect().await.expect("a body");
    assert_eq!(body.trailers().expect("trailers")["x-sum"], "7");
    assert_eq!(body.to_bytes(), "ok");
}

#[tokio::test]
async fn an_idle_connection_is_told_to_go_and_one_that_says_nothing_is_left() {
    let node = Server::start(async |_| answer(200, "hello")).await;
    let lines = "server.header_read_timeout = \"300ms\"\nserver.idle_timeout = \"600ms\"";
    let proxy = Proxy::start(&node_mode(node.address, lines));
    // The preface slowly, and after it nothing.
    for said in
        [&b"PRI * HT"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"]
    {
        let mut silent = Raw::connect(proxy.address).await;
        silent.write(said).await;
        silent.is_left().await;
    }
    let (client, connection) = Http2::connect_tracked(proxy.address).await;
    assert_eq!(client.get("abc", "/").await.text(), "hello");
    let start = Instant::now();
    let end = timeout(PATIENCE, connection).await.expect("an end in time").expect("no panic");
    assert!(end.is_ok() && start.elapsed() >= std::time::Duration::from_millis(500), "{:?} {end:?}", start.elapsed());
    proxy.is_idle().await;
}

#[tokio::test]
async fn answers_to_head_have_no_body_whoever_made_them() {
    let world = World::new("").await;
    world.control.sandbox("awake").running("127.0.0.1");
    let client = Http2::connect(world.proxy.address).await;
    let answer = client.send(request("HEAD", "nobody", "/", full(""))).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (502, 0));
    let length: usize = answer.header("content-length").parse().expect("that of the answer to GET");
    assert_eq!(client.get("nobody", "/").await.error(), "sandbox_not_found");
    assert!(length > 100, "{length}");
    let answer = client.send(request("HEAD", "awake", "/", full(""))).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-length"), answer.body.len()), (200, "5", 0));
    // The same over HTTP/1.1.
    let mut raw = Raw::connect(world.proxy.address).await;
    raw.write("HEAD / HTTP/1.1\r\nHost: 8000-nobody.example.test\r\n\r\n").await;
    let head = Head(raw.head().await);
    assert!(head.status() == 502 && head.one("content-length").parse::<usize>().expect("a number") > 100);
    raw.write("HEAD / HTTP/1.1\r\nHost: 8000-awake.example.test\r\nConnection: close\r\n\r\n").await;
    assert!(String::from_utf8(raw.rest().await.expect("an end")).expect("text").starts_with("HTTP/1.1 200 OK\r\n"));
}
