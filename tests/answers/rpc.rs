//! Errors as clients of gRPC and Connect read them from the wire.

use http::uri::PathAndQuery;
use serde_json::{Value, json};
use tonic::{Code, Request, Status, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use crate::{
    asking::{Over, ask, messages},
    frames::{self, Frames},
    support::{
        Proxy, World,
        control_plane::{Gate, Step},
    },
};

#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

/// A call with one answer by a client of the wild.
async fn call(proxy: &Proxy, sandbox: &str, fields: &[(&'static str, &'static str)]) -> Status {
    let endpoint = Endpoint::from_shared(format!("http://{}", proxy.address)).expect("a URI");
    let origin = format!("http://8000-{sandbox}.example.test").parse().expect("a URI");
    let channel = endpoint.origin(origin).connect().await.expect("a connection");
    let mut client = Grpc::new(channel);
    client.ready().await.expect("an open connection");
    let mut request = Request::new(Note { text: "hello".into() });
    for (name, value) in fields {
        request.metadata_mut().insert(*name, value.parse().expect("ASCII"));
    }
    let path = PathAndQuery::from_static("/test.Notes/Echo");
    client.unary::<_, Note, _>(request, path, ProstCodec::default()).await.expect_err("a status")
}

#[tokio::test]
async fn a_client_of_grpc_reads_status_and_words() {
    let world = World::new("").await;
    let limit = "20 sandboxes at 100% – see é.test\r\n";
    world.control.sandbox("abc").paused("127.0.0.1");
    world.control.sandbox("full").paused("127.0.0.1").wakes([Step::error(429, limit)]);
    world.control.sandbox("denied").paused("127.0.0.1").wakes([Step::error(403, "no")]);
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    for (sandbox, fields, code, words) in [
        ("abc", &[("x-sandbox-wake", "never")][..], Code::NotFound, "was not found"),
        ("none", &[], Code::NotFound, "was not found"),
        ("full", &[], Code::ResourceExhausted, "20 sandboxes at 100%"),
        ("denied", &[], Code::PermissionDenied, "Access denied"),
        ("bad", &[], Code::Unavailable, "Try again soon"),
        ("not_an_id", &[], Code::InvalidArgument, "a-z and 0-9"),
    ] {
        let status = call(&world.proxy, sandbox, fields).await;
        assert_eq!(status.code(), code, "{sandbox}: {status:?}");
        assert!(status.message().contains(words), "{sandbox}: {status:?}");
        let told = status.metadata().get("proxy-status").expect("who says so").to_str().expect("ASCII");
        assert!(told.starts_with("client-proxy; error="), "{told}");
    }
    let gate = Gate::closed();
    world.control.sandbox("slow").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let status = call(&world.proxy, "slow", &[("x-sandbox-wake", "async")]).await;
    assert_eq!((status.code(), status.metadata().contains_key("retry-after")), (Code::Unavailable, true));
    // The words of the control plane, as they are.
    let status = call(&world.proxy, "full", &[]).await;
    assert_eq!(status.message().trim_end(), limit.trim_end());
    gate.open();
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn trailers_only_is_one_frame_that_ends_the_stream() {
    let world = World::new("").await;
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    let mut client = Frames::connect(world.proxy.address).await;
    let fields = |content_type| {
        frames::block([
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "8000-bad.example.test"),
            (":path", "/test.Notes/Echo"),
            ("content-type", content_type),
            ("te", "trailers"),
        ])
    };
    // One with its whole message, one that has not ended yet.
    client.send(frames::frame(frames::HEADERS, frames::END_HEADERS, 1, fields("application/grpc"))).await;
    client.send(frames::frame(frames::DATA, frames::END_STREAM, 1, [0, 0, 0, 0, 0])).await;
    client.send(frames::frame(frames::HEADERS, frames::END_HEADERS, 3, fields("application/grpc+json"))).await;
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let frame = client.next().await.expect("an open connection");
        match frame.kind {
            frames::HEADERS => {
                let whole = frames::END_HEADERS | frames::END_STREAM;
                assert_eq!(frame.flags & whole, whole, "{frame:?}");
                ended.push(frame.stream);
            }
            frames::DATA | frames::GOAWAY => panic!("{frame:?}"),
            _ => {}
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [1, 3]);
}

#[tokio::test]
async fn connect_reads_codes_that_no_sdk_takes_for_a_sandbox_that_is_gone() {
    let world = World::new("resume.hold_timeout = \"300ms\"\n").await;
    let gate = Gate::closed();
    world.control.sandbox("slow").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    world.control.sandbox("busy").paused("127.0.0.1").always_wakes(Step::conflict());
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    for (sandbox, fields, status, code) in [
        ("bad", &[][..], 503, "aborted"),
        ("busy", &[], 409, "aborted"),
        ("slow", &[("connect-timeout-ms", "100")], 504, "deadline_exceeded"),
        ("slow", &[("x-sandbox-wake", "async")], 503, "aborted"),
    ] {
        let unary = [fields, &[("content-type", "application/json"), ("connect-protocol-version", "1")]].concat();
        let answer = ask(&world.proxy, Over::Http2, ("POST", 49983, sandbox, "/x.Y/Z"), &unary).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (status, &json!(code)), "{sandbox}");
        let stream = [fields, &[("content-type", "application/connect+json")]].concat();
        let answer = ask(&world.proxy, Over::Http1, ("POST", 49983, sandbox, "/x.Y/Z"), &stream).await;
        let [(2, end)] = &messages(&answer.body)[..] else { panic!("{answer:?}") };
        let end: Value = serde_json::from_slice(end).expect("JSON");
        assert_eq!((answer.status.as_u16(), &end["error"]["code"]), (200, &json!(code)), "{sandbox}: {end}");
    }
    gate.open();
    world.proxy.is_idle().await;
}
