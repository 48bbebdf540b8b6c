//! What goes out in HTTP/2, how its heads look, and the interim answers before the final one.

use crate::{
    client::{Client, GRPC, body, head, post},
    frames::{END_HEADERS, HEADERS, Peer},
    notes::{Notes, Service},
    support::{
        Proxy, Raw,
        wire::{HOST, Node, direct_mode, node_mode},
    },
};

/// A request with these fields, over HTTP/1.1.
fn request(fields: &str) -> String {
    format!("GET /path?query=1 HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n")
}

#[tokio::test]
async fn who_is_asked_in_which_protocol() {
    let grpc = ["application/grpc", "application/grpc+proto", "Application/gRPC; x=1"];
    let others = [
        "application/grpc-web",
        "application/grpc-web-text+proto",
        "application/grpcfoo",
        "application/json",
        "text/application/grpc",
    ];
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    for (protocol, grpc_is_http2, others_are) in [("auto", true, false), ("http1", false, false), ("h2c", true, true)] {
        let node = Node::start().await;
        let proxies = [node.proxy_with(&format!("upstream.protocol = \"{protocol}\"")), {
            let host = format!("upstream.address = \"{{node}}:{}\"", node.address.port());
            Proxy::start(&direct_mode(&format!("upstream.protocol = \"{protocol}\"\n{host}")))
        }];
        for (proxy, is_node) in proxies.iter().zip([true, false]) {
            for (content_type, is_http2) in
                grpc.map(|kind| (kind, grpc_is_http2)).into_iter().chain(others.map(|kind| (kind, others_are)))
            {
                for (more, is_http2) in [("", is_http2), (upgrade, false)] {
                    let mut client = Raw::connect(proxy.address).await;
                    client.write(request(&format!("Content-Type: {content_type}\r\n{more}"))).await;
                    let mut upstream = node.accept().await;
                    let begin = upstream.exactly(4).await;
                    assert_eq!(begin == b"PRI ", is_http2, "{protocol} {content_type} {more}");
                    // It ends here, so that none is pooled. Over HTTP/2 nothing was sent yet.
                    drop(upstream);
                    // Callers of gRPC and gRPC-Web read another field.
                    let is_grpc = grpc.contains(&content_type) || content_type.starts_with("application/grpc-web");
                    let status = if is_grpc {
                        200
                    } else if is_http2 && is_node {
                        503
                    } else {
                        502
                    };
                    assert_eq!(client.message().await.head.status(), status);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_head_is_one_of_http_2_and_no_field_of_a_connection_is_in_it() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, "upstream.protocol = \"h2c\""));
    let fields = "Connection: keep-alive, X-Hop, TE\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
                  X-Hop: 1\r\nUpgrade: h2c\r\nTE: trailers, gzip\r\nTransfer-Encoding: chunked\r\nX-Kept: 1\r\nX-Kept: 2\r\n\r\n0\r\n";
    let mut client = Raw::connect(proxy.address).await;
    client.write(request(fields)).await;
    client.head().await;
    let seen = service.seen.heads.lock().expect("no panic").pop().expect("a request");
    assert_eq!((&seen.method, seen.version), (&http::Method::GET, http::Version::HTTP_2));
    assert_eq!(seen.uri.to_string(), format!("http://{HOST}/path?query=1"));
    for name in ["host", "connection", "keep-alive", "proxy-connection", "x-hop", "upgrade", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }
    assert_eq!(seen.headers["te"], "trailers");
    let kept: Vec<_> = seen.headers.get_all("x-kept").iter().collect();
    assert_eq!(kept, ["1", "2"]);
    assert!(seen.headers.contains_key("x-request-id") && seen.headers.contains_key("x-forwarded-for"));
}

#[tokio::test]
async fn a_request_that_is_routed_by_headers_gets_the_sandbox_s_own_authority() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, "server.domains = [\"example.test\"]"));
    let mut client = Client::connect(proxy.address).await;
    let request = http::Request::post("http://sandbox.example.test/test.Notes/None")
        .header("content-type", GRPC)
        .header("e2b-sandbox-id", "abc")
        .header("e2b-sandbox-port", "8000");
    let (response, _) = client.send(request.body(()).expect("a request"), true).await;
    head(response).await;
    let seen = service.seen.heads.lock().expect("no panic").pop().expect("a request");
    assert_eq!(seen.uri.authority().map(http::uri::Authority::as_str), Some(HOST));
    assert_eq!(seen.headers["x-forwarded-host"], "sandbox.example.test");
}

/// `:status`, as literal text.
fn status(code: &str) -> Vec<u8> {
    [&[8, 3], code.as_bytes()].concat()
}

#[tokio::test]
async fn interim_answers_are_dropped_and_break_nothing() {
    let node = Node::start().await;
    let proxy = node.proxy();
    // Over HTTP/1.1 and HTTP/2 upstream, to clients of either.
    let mut client = Raw::connect(proxy.address).await;
    client.write(request("")).await;
    let mut upstream = node.accept().await;
    upstream.head().await;
    for interim in ["100 Continue", "102 Processing", "103 Early Hints\r\nLink: </a>"] {
        upstream.write(format!("HTTP/1.1 {interim}\r\n\r\n")).await;
    }
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let message = client.message().await;
    assert_eq!((message.head.status(), message.text(), message.head.has("link")), (200, "ok".into(), false));

    let mut http2 = Client::connect(proxy.address).await;
    let (response, _) = http2.send(post("text/plain"), true).await;
    upstream.head().await;
    upstream.write("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(body(head(response).await.into_body()).await.expect("all of it").0, b"ok");

    client.write(request(&format!("Content-Type: {GRPC}\r\n"))).await;
    let mut upstream = Peer::accept(&node).await;
    let (response, _) = http2.send(post(GRPC), true).await;
    for _ in 0..2 {
        let stream = upstream.headers().await;
        for code in ["100", "102", "103"] {
            upstream.write(HEADERS, END_HEADERS, stream, &status(code)).await;
        }
        upstream.answer(stream, b"ok").await;
    }
    assert_eq!(client.message().await.text(), "ok");
    assert_eq!(body(head(response).await.into_body()).await.expect("all of it").0, b"ok");
}

#[tokio::test]
async fn a_client_of_http_2_asks_one_of_http_1_1_as_before() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"http1\"");
    let mut client = Client::connect(proxy.address).await;
    let (response, _) = client.send(post(GRPC), true).await;
    let mut upstream = node.accept().await;
    let seen = upstream.head().await;
    assert!(seen.starts_with("POST / HTTP/1.1\r\n"), "{seen}");
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(body(head(response).await.into_body()).await.expect("all of it").0, b"ok");
}

#[tokio::test]
async fn an_answer_to_head_has_a_length_and_no_body() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"h2c\"");
    let mut client = Raw::connect(proxy.address).await;
    client.write(request("").replace("GET", "HEAD")).await;
    let mut upstream = Peer::accept(&node).await;
    let stream = upstream.headers().await;
    // `content-length: 1000`, by its index in the table (RFC 7541, appendix A).
    let length = [&[0x88, 0x0f, 0x0d, 4][..], b"1000"].concat();
    upstream.write(HEADERS, END_HEADERS | 1, stream, &length).await;
    let seen = client.head().await;
    assert!(seen.contains("content-length: 1000\r\n"), "{seen}");
    client.write(request("")).await;
    let stream = upstream.headers().await;
    upstream.answer(stream, b"next").await;
    assert_eq!(client.message().await.text(), "next");
}

#[tokio::test]
async fn the_host_of_a_call_is_the_one_that_was_asked_for() {
    let service = Service::start();
    let proxy = Proxy::start(&direct_mode(""));
    let host = format!("{}-abc.example.test:{}", service.address.port(), proxy.address.port());
    assert_eq!(Notes::connect(proxy.address, &host).await.echo("hello").await.expect("an answer"), "hello");
    let seen = service.seen.heads.lock().expect("no panic").pop().expect("a request");
    assert_eq!(seen.uri.authority().map(http::uri::Authority::as_str), Some(&*host));
}

#[tokio::test]
async fn every_host_that_is_served_can_be_said_in_http_2() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, "upstream.protocol = \"h2c\""));
    for host in [HOST, "8000-abc.example.test.", "8000-abc.example.test:", "8000-ABC.EXAMPLE.test:80"] {
        let mut client = Raw::connect(proxy.address).await;
        client.write(request("").replace(HOST, host)).await;
        assert_eq!(client.message().await.head.status(), 200, "{host}");
    }
}
