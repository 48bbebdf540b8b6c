//! How Connect streams of envd's end in trailers, and while no more requests may be held.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    asking::{BOTH, Over, forget, get, messages, outcome},
    envd::{Cut, Envd},
    reader::{CONNECT, Client},
    support::{
        PATIENCE, Proxy, Raw,
        control_plane::{ControlPlane, Gate, Step},
        nodes_at,
        wire::Node,
    },
};

/// A whole message, and the beginning of another.
const SAID: &[u8] = b"\0\0\0\0\x03abc\0\0\0\0\x05de";

fn sum() -> HeaderMap {
    HeaderMap::from_iter([("x-sum".parse().expect("a name"), HeaderValue::from_static("abc"))])
}

/// The beginning of a message is kept back until the rest comes; what comes instead must not overtake it.
#[tokio::test]
async fn trailers_follow_all_that_came_before_them() {
    for http2 in [false, true] {
        let node = Node::start().await;
        let proxy = node.proxy_with(if http2 { "upstream.protocol = \"h2c\"" } else { "" });
        let envd = Envd::accept(&node, http2, CONNECT);
        let (mut client, mut envd) = Client::call(proxy.address, Over::Http2, 49983, envd).await;
        envd.say(SAID).await;
        // The proxy has it, and keeps the rest back.
        assert_eq!(client.has(8).await, SAID[..8]);
        let mut left = None;
        match envd {
            Envd::Http1(mut raw) => raw.write("0\r\nx-sum: abc\r\n\r\n").await,
            Envd::Http2 { mut stream, connection, .. } => {
                stream.send_trailers(sum()).expect("an open stream");
                left = Some(connection);
            }
        }
        let Client::Http2(mut body, driver) = client else { panic!("HTTP/2") };
        let mut rest = Vec::new();
        while let Some(data) = timeout(PATIENCE, body.data()).await.expect("an end in time") {
            rest.extend(data.expect("no cut"));
        }
        assert_eq!(Bytes::from(rest), SAID[8..], "{http2}");
        let trailers = timeout(PATIENCE, body.trailers()).await.expect("trailers in time").expect("a good end");
        assert_eq!(trailers, Some(sum()), "{http2}");
        driver.abort();
        left.inspect(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test]
async fn over_http1_trailers_follow_it_too() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let mut client = Raw::connect(proxy.address).await;
    client
        .write(format!(
            "POST /process.Process/Start HTTP/1.1\r\nHost: 49983-abc.example.test\r\nTE: trailers\r\n\
             Content-Type: {CONNECT}\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
    let mut envd = node.accept().await;
    envd.head().await;
    envd.write(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {CONNECT}\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         f\r\n{}\r\n0\r\nx-sum: abc\r\n\r\n",
        std::str::from_utf8(SAID).expect("ASCII")
    ))
    .await;
    client.head().await;
    let mut read = Vec::new();
    while let Some(chunk) = client.chunk().await {
        read.extend(chunk);
    }
    assert_eq!(read, SAID);
    assert_eq!(client.read_until("\r\n\r\n").await, "x-sum: abc\r\n\r\n");
}

/// A look needs no place among those who are held: pauses are what fills those places.
#[tokio::test]
async fn where_no_more_may_be_held_a_stream_that_is_cut_still_ends_in_the_error() {
    for bound in ["max_held", "max_held_per_sandbox", "max_held_per_client"] {
        let (control, node, gate) = (ControlPlane::start().await, Node::start().await, Gate::closed());
        let lines = format!("resume.{bound} = 1\n{}", nodes_at(node.address.port()));
        let proxy = Proxy::start(&control.config(&lines));
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1");
        let mut streams = Vec::new();
        for over in BOTH {
            let envd = Envd::accept(&node, false, CONNECT);
            streams.push(Client::call(proxy.address, over, 49983, envd).await);
        }
        // The only place is taken: of this sandbox where that is the bound, and else of another.
        let taken = if bound == "max_held_per_sandbox" { "abc" } else { "other" };
        sandbox.paused("127.0.0.1");
        control.sandbox(taken).paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        forget(&proxy, taken).await;
        let held = async {
            let answer = get(&proxy, taken, &[]).await;
            assert_eq!(outcome(&answer), (502, "sandbox_not_found; reason=unknown"), "{answer:?}");
        };
        let cut = async {
            control.sandbox(taken).connects_become(1).await;
            assert_eq!(outcome(&get(&proxy, taken, &[]).await), (503, "too_many_held"), "{bound}");
            for (client, envd) in streams {
                drop(envd.cut(Cut::Fin));
                let (read, ended) = client.rest().await;
                let [(2, end)] = &messages(&read)[..] else { panic!("{bound}: no end: {read:?}, {ended}") };
                let end: Value = serde_json::from_slice(end).expect("JSON");
                assert_eq!((&end["error"]["error"], ended), (&json!("sandbox_not_found"), true), "{bound}");
            }
            control.sandbox(taken).killed();
            gate.open();
        };
        tokio::join!(held, cut);
        proxy.is_idle().await;
    }
}
