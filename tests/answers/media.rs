//! Each line of the README's table of media, over real connections of both versions.

use http::Method;

use crate::{
    asking::{BOTH, Fields, Medium, Over, Own, ask},
    support::{
        Proxy, Raw, World,
        control_plane::Step,
        http2::{Http2, connect},
        wire::Head,
    },
};

const STREAM: &str = "application/connect+proto";
const GRPC: &str = "application/grpc";

const ASLEEP: Own = Own {
    status: 502,
    code: "sandbox_not_found",
    reason: Some("not_woken"),
    connect: "unavailable",
    grpc: "5",
    retry: false,
};
const DOWN: Own =
    Own { status: 503, code: "control_plane_unavailable", reason: None, connect: "aborted", grpc: "14", retry: true };
const NO_PORT: Own =
    Own { status: 400, code: "invalid_port", reason: None, connect: "invalid_argument", grpc: "3", retry: false };

/// A sandbox that sleeps, and one of which the control plane says nothing that can be read.
async fn world() -> World {
    let world = World::new("").await;
    world.control.sandbox("abc").paused("127.0.0.1");
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    world
}

/// Method, fields, and what such a caller reads.
type Row = (&'static str, Fields<'static>, Medium);

const ROWS: &[Row] = &[
    ("POST", &[("content-type", "application/grpc")], Medium::Grpc(GRPC)),
    ("POST", &[("content-type", "application/grpc+proto")], Medium::Grpc("application/grpc+proto")),
    ("POST", &[("content-type", "application/grpc-web+proto")], Medium::Grpc("application/grpc-web+proto")),
    ("POST", &[("content-type", "application/grpc"), ("sec-fetch-mode", "navigate")], Medium::Grpc(GRPC)),
    ("POST", &[("content-type", "application/grpcfoo")], Medium::Json),
    ("POST", &[("content-type", STREAM), ("connect-protocol-version", "1")], Medium::Stream(STREAM)),
    ("POST", &[("content-type", "application/connect+json")], Medium::Stream("application/connect+json")),
    ("POST", &[("content-type", "application/proto"), ("connect-protocol-version", "1")], Medium::Connect),
    ("POST", &[("content-type", "application/json"), ("connect-protocol-version", "1")], Medium::Connect),
    ("GET", &[("x-requested-with", "XMLHttpRequest"), ("accept", "text/html")], Medium::Json),
    ("GET", &[("sec-fetch-mode", "cors"), ("accept", "text/html")], Medium::Json),
    ("GET", &[("sec-fetch-mode", "no-cors"), ("accept", "text/html")], Medium::Json),
    ("GET", &[("sec-fetch-mode", "navigate"), ("x-requested-with", "app")], Medium::Json),
    ("GET", &[("sec-fetch-mode", "navigate")], Medium::Page),
    ("GET", &[("sec-fetch-mode", "navigate"), ("accept", "application/json")], Medium::Page),
    ("GET", &[("accept", "text/html, application/json")], Medium::Json),
    ("GET", &[("accept", "text/html, application/json;q=0")], Medium::Page),
    ("GET", &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")], Medium::Page),
    ("GET", &[("accept", "text/html;q=0, */*")], Medium::Json),
    ("GET", &[("accept", "*/*"), ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0")], Medium::Json),
    ("GET", &[("accept", "*/*"), ("user-agent", "curl/8.5.0")], Medium::Json),
    ("POST", &[("accept", "text/html")], Medium::Page),
    ("DELETE", &[], Medium::Json),
];

#[tokio::test]
async fn each_caller_reads_what_it_can_read_whatever_failed() {
    let world = world().await;
    for over in BOTH {
        for (method, fields, medium) in ROWS {
            let asleep = [*fields, &[("x-sandbox-wake", "never")]].concat();
            ASLEEP.is(&ask(&world.proxy, over, (method, 8000, "abc", "/"), &asleep).await, *medium);
            DOWN.is(&ask(&world.proxy, over, (method, 49983, "bad", "/"), fields).await, *medium);
            NO_PORT.is(&ask(&world.proxy, over, (method, 0, "abc", "/"), fields).await, *medium);
        }
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_connect_call_by_get_reads_what_others_of_its_protocol_read_and_a_person_the_page() {
    let world = world().await;
    let path = "/a.B/C?connect=v1&encoding=json&message=%7B%7D";
    for over in BOTH {
        for (fields, medium) in [
            (&[][..], Medium::Connect),
            (&[("sec-fetch-mode", "cors"), ("origin", "https://a.test")], Medium::Connect),
            (&[("sec-fetch-mode", "navigate")], Medium::Page),
            (&[("accept", "text/html,*/*;q=0.8")], Medium::Page),
        ] {
            let asleep = [fields, &[("x-sandbox-wake", "never")]].concat();
            ASLEEP.is(&ask(&world.proxy, over, ("GET", 8000, "abc", path), &asleep).await, medium);
            DOWN.is(&ask(&world.proxy, over, ("GET", 49983, "bad", path), fields).await, medium);
        }
        DOWN.is(&ask(&world.proxy, over, ("GET", 8000, "bad", "/?connect=v1&encoding=json"), &[]).await, Medium::Json);
    }
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_refused_upgrade_is_told_in_json() {
    let world = world().await;
    let upgrade: &[_] = &[
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-fetch-mode", "websocket"),
        ("accept", "text/html"),
    ];
    let asleep = [upgrade, &[("x-sandbox-wake", "never")]].concat();
    ASLEEP.is(&ask(&world.proxy, Over::Http1, ("GET", 8000, "abc", "/"), &asleep).await, Medium::Json);
    DOWN.is(&ask(&world.proxy, Over::Http1, ("GET", 8000, "bad", "/"), upgrade).await, Medium::Json);

    let client = Http2::connect(world.proxy.address).await;
    let mut request = connect("websocket", "abc", "/");
    request.headers_mut().insert("x-sandbox-wake", http::HeaderValue::from_static("never"));
    ASLEEP.is(&client.send(request).await, Medium::Json);
    DOWN.is(&client.send(connect("websocket", "bad", "/")).await, Medium::Json);
    let other = Own {
        status: 501,
        code: "protocol_not_supported",
        reason: None,
        connect: "unimplemented",
        grpc: "12",
        retry: false,
    };
    other.is(&client.send(connect("connect-udp", "abc", "/")).await, Medium::Json);
    // The connection goes on.
    DOWN.is(&client.get("bad", "/").await, Medium::Json);
}

#[tokio::test]
async fn h2c_is_no_upgrade_that_is_refused() {
    let world = world().await;
    let fields = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    DOWN.is(&ask(&world.proxy, Over::Http1, ("GET", 8000, "bad", "/"), &fields).await, Medium::Json);
    // Without `Connection` it asks for nothing (RFC 9110 §7.8).
    DOWN.is(
        &ask(&world.proxy, Over::Http1, ("GET", 8000, "bad", "/"), &[("upgrade", "websocket")]).await,
        Medium::Json,
    );
}

#[tokio::test]
async fn a_tool_of_http_1_0_reads_plain_text_and_the_end_of_the_connection() {
    let world = world().await;
    for (more, reads) in [("", Medium::Text), ("Accept: application/json\r\n", Medium::Json)] {
        let mut client = Raw::connect(world.proxy.address).await;
        client.write(format!("GET / HTTP/1.0\r\nHost: 8000-bad.example.test\r\n{more}\r\n")).await;
        let message = client.message().await;
        let content_type = message.head.one("content-type");
        assert_eq!(content_type.starts_with("text/plain"), reads == Medium::Text, "{content_type}");
        if reads == Medium::Text {
            let text = message.text();
            assert!(text.starts_with("control_plane_unavailable: It cannot be told now"), "{text}");
            assert!(text.contains(&format!("\nrequest id: {}\n", message.head.one("x-request-id"))), "{text}");
        }
        assert_eq!((message.head.status(), message.head.one("content-length").is_empty()), (503, false));
        assert!(client.rest().await.expect("a clean end").is_empty());
    }
}

#[tokio::test]
async fn head_gets_the_head_that_get_would_have_got() {
    let world = world().await;
    for over in BOTH {
        for (_, fields, medium) in ROWS.iter().filter(|(method, ..)| *method == "GET") {
            let get = ask(&world.proxy, over, ("GET", 8000, "bad", "/"), fields).await;
            let head = ask(&world.proxy, over, ("HEAD", 8000, "bad", "/"), fields).await;
            assert_eq!((head.status, head.body.len()), (get.status, 0), "{over:?} {medium:?}");
            assert_eq!(head.header("content-length"), get.body.len().to_string(), "{over:?} {medium:?}");
            assert_eq!(head.header("content-type"), get.header("content-type"));
        }
    }
    assert_eq!(world.node.requests(), 0);
}

/// Refuses an upload whose end has not come: head, body, and whether the connection ends well.
async fn refused_early(proxy: &Proxy, method: &Method, content_type: &str) -> (Head, Vec<u8>) {
    let mut client = Raw::connect(proxy.address).await;
    let head = format!(
        "{method} / HTTP/1.1\r\nHost: 8000-bad.example.test\r\nContent-Type: {content_type}\r\n\
         Connect-Protocol-Version: 1\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n"
    );
    client.write(head).await;
    client.write([7; 512]).await;
    let message = client.message().await;
    // What it still sends is read, so that it can read the answer; then both are done.
    client.write([7; 512]).await;
    client.write("\r\n0\r\n\r\n").await;
    assert!(client.rest().await.expect("a clean end").is_empty());
    (message.head, message.body)
}

#[tokio::test]
async fn an_upload_refused_early_reads_its_answer_and_its_connection_ends_well() {
    let world = world().await;
    for (content_type, status, begins) in [
        ("application/octet-stream", 503, &b"{\"code\":\"aborted\""[..]),
        (STREAM, 200, b"\x02\0\0"),
        ("application/grpc-web+proto", 200, b""),
    ] {
        let (head, body) = refused_early(&world.proxy, &Method::POST, content_type).await;
        assert_eq!((head.status(), head.one("connection")), (status, "close"), "{content_type}");
        assert!(body.starts_with(begins), "{content_type}: {body:?}");
        assert_eq!(head.one("content-length"), body.len().to_string());
        assert!(head.one("proxy-status").contains("control_plane_unavailable"));
    }
    world.proxy.is_idle().await;
}
