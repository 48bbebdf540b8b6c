//! What happens to the heads of messages on their way through.

use crate::support::{
    Proxy, Raw,
    wire::{HOST, Head, Message, Node, OK, get},
};

/// A proxy with one client connection and the one node connection that it leads to.
struct Way {
    proxy: Proxy,
    node: Node,
    client: Raw,
    upstream: Option<Raw>,
}

impl Way {
    async fn new() -> Self {
        Self::with("").await
    }

    async fn with(lines: &str) -> Self {
        let node = Node::start().await;
        let proxy = node.proxy_with(lines);
        let client = Raw::connect(proxy.address).await;
        Self { proxy, node, client, upstream: None }
    }

    async fn upstream(&mut self) -> &mut Raw {
        if self.upstream.is_none() {
            self.upstream = Some(self.node.accept().await);
        }
        self.upstream.as_mut().expect("just put there")
    }

    /// Sends the request; the head that the node sees.
    async fn there(&mut self, request: &str) -> Head {
        self.client.write(request).await;
        Head(self.upstream().await.head().await)
    }

    /// A request with these header lines; the head that the node sees. It answers.
    async fn up(&mut self, lines: &str) -> Head {
        let seen = self.there(&format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n")).await;
        self.upstream().await.write(OK).await;
        assert_eq!(self.client.message().await.text(), "ok");
        seen
    }

    /// The node answers a plain request with these bytes; what the client sees.
    async fn down(&mut self, answer: &str) -> Message {
        self.there(&get("/")).await;
        self.upstream().await.write(answer).await;
        self.client.message().await
    }
}

#[tokio::test]
async fn hop_by_hop_fields_of_a_request_stay_here() {
    let mut way = Way::new().await;
    let seen = way
        .up("Connection: X-Private, keep-alive\r\nconnection: x-Other ,, x-third\r\nX-Private: 1\r\nx-other: 1\r\n\
             X-THIRD: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nTE: gzip\r\nX-Kept: 1\r\n")
        .await;
    let gone = ["x-private", "x-other", "x-third", "keep-alive", "proxy-connection", "upgrade", "te", "connection"];
    assert_eq!(gone.into_iter().filter(|name| seen.has(name)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((seen.one("x-kept"), seen.one("host")), ("1", HOST));
    // What this proxy says itself cannot be nominated away.
    let seen = way.up("Connection: Host, X-Forwarded-For, X-Request-Id, Connection\r\n").await;
    assert_eq!((seen.one("host"), seen.one("x-forwarded-for")), (HOST, "127.0.0.1"));
    assert!(!seen.one("x-request-id").is_empty());
}

#[tokio::test]
async fn hop_by_hop_fields_of_an_answer_stay_here() {
    let mut way = Way::new().await;
    let answer = way
        .down(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close, X-Private\r\nX-Private: 1\r\n\
             Keep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\nok",
        )
        .await;
    for gone in ["connection", "x-private", "keep-alive", "proxy-connection", "upgrade"] {
        assert!(!answer.head.has(gone), "{gone}");
    }
    assert_eq!((answer.head.one("x-kept"), answer.text()), ("1", "ok".into()));
    // The sandbox closed its connection, not the client's.
    way.upstream = None;
    assert_eq!(way.down(OK).await.text(), "ok");
}

#[tokio::test]
async fn only_trailers_stay_in_te() {
    let mut way = Way::new().await;
    let seen = way.up("TE: trailers\r\nConnection: TE\r\n").await;
    assert_eq!((seen.one("te"), seen.one("connection").to_ascii_lowercase()), ("trailers", "te".into()));
    let seen = way.up("TE: gzip;q=0.5, trailers\r\n").await;
    assert_eq!(seen.one("te"), "trailers");
    let seen = way.up("TE: deflate\r\nConnection: TE\r\n").await;
    assert!(!seen.has("te") && !seen.has("connection"));
}

#[tokio::test]
async fn repeated_fields_keep_their_order() {
    let mut way = Way::new().await;
    let seen = way.up("Cookie: a=1\r\nX-Many: 1\r\nCookie: b=2\r\nX-Many: 2\r\nX-Many: 1\r\nCookie: a=3\r\n").await;
    assert_eq!((seen.all("cookie"), seen.all("x-many")), (vec!["a=1", "b=2", "a=3"], vec!["1", "2", "1"]));
    let answer = way
        .down(
            "HTTP/1.1 200 OK\r\nSet-Cookie: z=1, x\r\nX-A: 1\r\nContent-Length: 0\r\nset-cookie: a=2\r\nX-A: \r\n\
             SET-COOKIE: z=3\r\n\r\n",
        )
        .await;
    assert_eq!((answer.head.all("set-cookie"), answer.head.all("x-a")), (vec!["z=1, x", "a=2", "z=3"], vec!["1", ""]));
}

#[tokio::test]
async fn bytes_beyond_ascii_in_values_pass() {
    let mut way = Way::new().await;
    let seen = way.up("X-Name: gr\u{fc}n \u{1f980}\t!\r\n").await;
    assert_eq!(seen.one("x-name"), "gr\u{fc}n \u{1f980}\t!");
    let answer = way.down("HTTP/1.1 200 OK\r\nX-Name: \u{fc}\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(answer.head.one("x-name"), "\u{fc}");
}

#[tokio::test]
async fn the_sandboxs_own_errors_pass_as_they_are() {
    let mut way = Way::new().await;
    for line in
        ["404 Nope", "418 I'm a teapot", "429 Slow Down", "500 Oh", "502 Bad Gateway", "503 Soon", "599 ?", "299 "]
    {
        let answer = way
            .down(&format!(
                "HTTP/1.1 {line}\r\nRetry-After: 7\r\nContent-Length: 5\r\nContent-Type: x/y\r\n\r\n<a>\r\n"
            ))
            .await;
        assert_eq!(answer.head.line(), format!("HTTP/1.1 {line}"));
        assert_eq!((answer.head.one("retry-after"), answer.head.one("content-type")), ("7", "x/y"));
        assert_eq!(answer.text(), "<a>\r\n");
        for ours in ["proxy-status", "x-request-id", "cache-control", "server", "via"] {
            assert!(!answer.head.has(ours), "{ours}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn an_application_that_speaks_like_a_node_passes_and_gets_nothing_twice() {
    let mut way = Way::new().await;
    let body = r#"{"sandboxId":"abc","message":"The sandbox was not found","code":502}"#;
    let answer = format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json; charset=utf-8\r\nX-Own: 1\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..3 {
        way.client.write(format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\n\r\nbody")).await;
        let node = way.upstream().await;
        node.head().await;
        assert_eq!(node.exactly(4).await, b"body");
        node.write(&answer).await;
        let got = way.client.message().await;
        assert_eq!((got.head.status(), got.text(), got.head.one("x-own")), (502, body.into(), "1"));
        assert!(!got.head.has("proxy-status"));
    }
    assert!(way.node.nobody_knocks());
    assert_eq!(way.up("").await.line(), "GET / HTTP/1.1", "the next thing that the node sees is the next request");
}

#[tokio::test]
async fn interim_answers_are_dropped_and_the_final_one_is_right() {
    let mut way = Way::new().await;
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    for interim in [
        early.to_owned(),
        "HTTP/1.1 102 Processing\r\n\r\n".into(),
        "HTTP/1.1 100 Continue\r\n\r\n".into(),
        early.repeat(5) + "HTTP/1.1 102 Processing\r\n\r\n",
    ] {
        let answer = way.down(&(interim + "HTTP/1.1 201 Made\r\nContent-Length: 4\r\n\r\nbody")).await;
        assert_eq!((answer.head.line(), answer.text()), ("HTTP/1.1 201 Made", "body".into()));
        assert!(!answer.head.has("link"));
    }
    assert!(way.node.nobody_knocks(), "the connection serves on");
}

#[tokio::test]
async fn strangers_cannot_claim_to_forward_for_others() {
    let mut way = Way::new().await;
    let seen = way
        .up("X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\n\
             X-Forwarded-Prefix: /x\r\nForwarded: for=1.2.3.4;proto=https\r\nX-Real-IP: 1.2.3.4\r\nx-forwarded-for: 5.6.7.8\r\n")
        .await;
    assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
    for gone in
        ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix", "forwarded", "x-real-ip"]
    {
        assert!(!seen.has(gone), "{gone}");
    }
    let seen = way.up("").await;
    assert!(!seen.has("x-forwarded-proto"), "never invented");
}

#[tokio::test]
async fn a_trusted_peer_is_believed_and_appended_to() {
    let mut way = Way::with("server.trusted_proxies = [\"127.0.0.0/8\"]").await;
    let seen = way
        .up("X-Forwarded-For: 1.2.3.4, 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\n\
             Forwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\n")
        .await;
    assert_eq!(seen.all("x-forwarded-for").join(", "), "1.2.3.4, 9.9.9.9, 5.6.7.8, 127.0.0.1");
    assert_eq!((seen.one("x-forwarded-proto"), seen.one("x-forwarded-host")), ("https", "shop"));
    assert_eq!((seen.one("forwarded"), seen.one("x-real-ip")), ("for=1.2.3.4", "1.2.3.4"));
    let seen = way.up("").await;
    assert_eq!((seen.all("x-forwarded-for"), seen.has("x-forwarded-proto")), (vec!["127.0.0.1"], false));
}

#[tokio::test]
async fn a_request_id_is_kept_or_made_and_goes_up() {
    let mut way = Way::new().await;
    assert_eq!(way.up("X-Request-Id: mine-1/2:3\r\n").await.all("x-request-id"), ["mine-1/2:3"]);
    let (one, other) = (way.up("").await, way.up("").await);
    let (one, other) = (one.one("x-request-id"), other.one("x-request-id"));
    assert!(one.len() >= 16 && one != other, "{one} {other}");
    for hostile in ["", "a b", "\u{e4}", "a\tb", &"a".repeat(129)] {
        let seen = way.up(&format!("X-Request-Id: {hostile}\r\n")).await;
        assert!(!seen.one("x-request-id").is_empty() && seen.one("x-request-id") != hostile, "{hostile}");
    }
    let seen = way.up("X-Request-Id: one\r\nX-Request-Id: two\r\n").await;
    assert_eq!(seen.all("x-request-id").len(), 1);
    let mut client = Raw::connect(way.proxy.address).await;
    client.write("GET / HTTP/1.1\r\nHost: 1-nobody.example.test\r\nX-Request-Id: mine\r\n\r\n").await;
    let answer = client.message().await;
    assert_eq!((answer.refusal().1, answer.head.one("x-request-id")), ("sandbox_not_found".into(), "mine"));
}

#[tokio::test]
async fn a_trace_passes_byte_for_byte_valid_or_not() {
    let mut way = Way::new().await;
    for parent in ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-00", "ff", "\u{e4}"] {
        let seen = way.up(&format!("TraceParent: {parent}\r\nTracestate: a=1,b\r\nTracestate: , c=\t2\r\n")).await;
        assert_eq!((seen.all("traceparent"), seen.all("tracestate")), (vec![parent], vec!["a=1,b", ", c=\t2"]));
    }
    let seen = way.up("traceparent: 1\r\ntraceparent: 2\r\n").await;
    assert_eq!(seen.all("traceparent"), ["1", "2"]);
    let seen = way.up("").await;
    assert!(!seen.has("traceparent") && !seen.has("tracestate"), "nobody asked for a trace");
}

#[tokio::test]
async fn our_own_request_field_goes_and_the_sandboxs_stay() {
    let mut way = Way::new().await;
    let seen = way
        .up("X-Sandbox-Wake: never\r\nE2b-Sandbox-Id: x\r\nE2b-Sandbox-Port: y\r\ne2b-traffic-access-token: t\r\n\
             X-Access-Token: a\r\nAuthorization: Bearer b\r\nTraceparent: 00-0-0-00\r\nE2b-Other: z\r\n")
        .await;
    assert!(!seen.has("x-sandbox-wake"));
    for (name, value) in [
        ("e2b-sandbox-id", "x"),
        ("e2b-sandbox-port", "y"),
        ("e2b-traffic-access-token", "t"),
        ("x-access-token", "a"),
        ("authorization", "Bearer b"),
        ("traceparent", "00-0-0-00"),
        ("e2b-other", "z"),
    ] {
        assert_eq!(seen.one(name), value);
    }
}

#[tokio::test]
async fn only_this_proxy_speaks_in_its_name() {
    let mut way = Way::new().await;
    for (given, left) in [
        ("Proxy-Status: client-proxy; error=destination_not_found; details=\"sandbox_not_found\"\r\n", ""),
        ("Proxy-Status: Client-Proxy\r\nproxy-status: \"client-proxy\";error=x\r\n", ""),
        ("Proxy-Status: cdn; error=y, client-proxy; error=x\r\n", "cdn; error=y"),
        ("Proxy-Status: client-proxy, a; x=\"1, client-proxy\"\r\nProxy-Status: b\r\n", "a; x=\"1, client-proxy\", b"),
        ("Proxy-Status: a; x=\"\\\", b\", client-proxy\r\n", "a; x=\"\\\", b\""),
        // A client reads the lines as one list: a string may span two of them.
        ("Proxy-Status: a; x=\"\r\nProxy-Status: \", client-proxy; error=x\r\n", "a; x=\", \""),
        // A string that does not end makes the list void.
        ("Proxy-Status: a; x=\"oops, client-proxy; error=x\r\n", ""),
        ("Proxy-Status: a;b=c\r\nProxy-Status: d\r\n", "a;b=c, d"),
    ] {
        let answer = way.down(&format!("HTTP/1.1 502 X\r\n{given}Content-Length: 0\r\n\r\n")).await;
        assert_eq!(answer.head.all("proxy-status").join(", "), left, "{given}");
    }
}

#[tokio::test]
async fn answers_without_body_keep_their_heads() {
    let mut way = Way::new().await;
    for _ in 0..2 {
        let seen = way.there(&format!("HEAD /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        assert_eq!(seen.line(), "HEAD /x HTTP/1.1");
        way.upstream().await.write("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: \"e\"\r\n\r\n").await;
        let head = Head(way.client.head().await);
        assert_eq!((head.one("content-length"), head.one("etag")), ("12345", "\"e\""));
        way.there(&get("/")).await;
        way.upstream().await.write("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: \"f\"\r\n\r\n").await;
        let head = Head(way.client.head().await);
        assert_eq!((head.line(), head.one("etag")), ("HTTP/1.1 304 Not Modified", "\"f\""));
        assert!(!head.has("transfer-encoding"));
        let answer = way.down("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n").await;
        assert_eq!((answer.head.status(), answer.head.one("x-a")), (204, "b"));
        assert!(!answer.head.has("content-length") && !answer.head.has("transfer-encoding"));
    }
    assert!(way.node.nobody_knocks(), "all on one connection");
}

#[tokio::test]
async fn an_answer_has_a_date() {
    let mut way = Way::new().await;
    assert!(way.down(OK).await.head.one("date").ends_with(" GMT"));
    let answer = way.down("HTTP/1.1 200 OK\r\nDate: yesterday\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(answer.head.all("date"), ["yesterday"]);
}

#[tokio::test]
async fn an_http_1_0_client_gets_what_it_can_read() {
    let mut way = Way::new().await;
    let seen = way.there(&format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n")).await;
    assert_eq!(seen.line(), "GET / HTTP/1.1");
    assert!(!seen.has("connection"));
    way.upstream()
        .await
        .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        .await;
    let head = Head(way.client.head().await);
    assert!(!head.has("transfer-encoding") && !head.has("content-length"), "{head:?}");
    assert_eq!(way.client.rest().await.expect("a clean end"), b"abcde");
    // One that can keep its connection may.
    way.client = Raw::connect(way.proxy.address).await;
    for _ in 0..2 {
        way.there(&format!("GET / HTTP/1.0\r\nHost: {HOST}\r\nConnection: keep-alive\r\n\r\n")).await;
        way.upstream().await.write(OK).await;
        assert_eq!(way.client.message().await.text(), "ok");
    }
}

#[tokio::test]
async fn an_http_1_0_upstream_is_understood() {
    let mut way = Way::new().await;
    way.there(&get("/")).await;
    way.upstream().await.write("HTTP/1.0 200 Fine\r\nContent-Length: 2\r\n\r\nok").await;
    let answer = way.client.message().await;
    assert_eq!((answer.head.line(), answer.text()), ("HTTP/1.1 200 Fine", "ok".into()));
    // It said nothing of keeping its connection.
    way.upstream().await.is_left().await;
    way.upstream = None;
    way.there(&get("/")).await;
    way.upstream().await.write("HTTP/1.0 200 Fine\r\n\r\nuntil the end").await;
    way.upstream = None;
    let answer = way.client.message().await;
    assert_eq!((answer.head.line(), answer.text()), ("HTTP/1.1 200 Fine", "until the end".into()));
}

#[tokio::test]
async fn a_length_beside_chunks_is_dropped() {
    let mut way = Way::new().await;
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
    for order in [both, "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"] {
        let chunks = "5\r\nhello\r\n0\r\n\r\n";
        let seen = way.there(&format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{order}\r\n{chunks}")).await;
        assert_eq!((seen.one("transfer-encoding"), seen.has("content-length")), ("chunked", false));
        assert_eq!(way.upstream().await.chunk().await.as_deref(), Some(&b"hello"[..]));
        assert_eq!(way.upstream().await.read_until("\r\n\r\n").await, "0\r\n\r\n");
        way.upstream().await.write(format!("HTTP/1.1 200 OK\r\n{order}\r\n{chunks}")).await;
        let answer = way.client.message().await;
        assert_eq!((answer.head.one("transfer-encoding"), answer.text()), ("chunked", "hello".into()));
        // What comes after such a message is not to be trusted.
        way.client.is_left().await;
        way.client = Raw::connect(way.proxy.address).await;
    }
    let answer = way.down("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!((answer.head.all("content-length"), answer.text()), (vec!["2"], "ok".into()));
}
