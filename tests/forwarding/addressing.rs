//! Who is meant, asked from outside: names, headers, targets, and what the sandbox sees of them.

use crate::support::{
    Proxy, Raw,
    wire::{HOST, Head, Message, Node, OK},
};

const BY_HEADERS: &str = "E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 8000\r\n";

/// One client connection, one node that it ends up at.
struct Way {
    proxy: Proxy,
    node: Node,
}

impl Way {
    async fn with(lines: &str) -> Self {
        let node = Node::start().await;
        Self { proxy: node.proxy_with(lines), node }
    }

    /// Sends the request; the head that the node sees. The answer must be the node's.
    async fn there(&self, request: &str) -> Head {
        let mut client = Raw::connect(self.proxy.address).await;
        client.write(request).await;
        let mut node = tokio::select! {
            node = self.node.accept() => node,
            refused = client.message() => panic!("{request:?} was refused: {refused:?}"),
        };
        let seen = Head(node.head().await);
        // The connection is not for the next request, so that each can be waited for.
        node.write(OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).await;
        drop(node);
        assert_eq!(client.message().await.text(), "ok");
        seen
    }

    /// Sends the request, which must not get to the node: the proxy's own answer.
    async fn refused(&self, request: impl AsRef<[u8]>) -> Message {
        let mut client = Raw::connect(self.proxy.address).await;
        client.write(request).await;
        let answer = client.message().await;
        assert!(self.node.nobody_knocks());
        let said = format!("{}{}", answer.head.0, answer.text());
        for internal in ["127.0.0.1", &self.node.address.port().to_string(), "src/", "panick"] {
            assert!(!said.contains(internal), "{internal}: {said}");
        }
        answer
    }

    async fn code(&self, request: impl AsRef<[u8]>) -> (u16, String) {
        self.refused(request).await.refusal()
    }
}

fn to(host: &str, headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")
}

#[tokio::test]
async fn headers_route_on_ip_literals_and_localhost_with_and_without_port() {
    let way = Way::with("server.domains = [\"example.test\"]").await;
    for host in [
        "192.168.100.66:3002",
        "192.168.100.66",
        "8.8.8.8",
        "127.0.0.1:80",
        "[2001:db8::7]:3002",
        "[2001:db8::7]",
        "[::1]:3002",
        "localhost",
        "localhost:3002",
        "LocalHost",
        "localhost.",
    ] {
        let seen = way.there(&to(host, BY_HEADERS)).await;
        assert_eq!((seen.one("host"), seen.has("x-forwarded-host")), (host, false));
        assert_eq!((seen.one("e2b-sandbox-id"), seen.one("e2b-sandbox-port")), ("abc", "8000"));
    }
}

#[tokio::test]
async fn a_host_that_names_a_sandbox_wins_over_headers() {
    let way = Way::with("").await;
    for headers in [
        "E2b-Sandbox-Id: other\r\nE2b-Sandbox-Port: 1\r\n",
        "E2b-Sandbox-Id: other\r\n",
        "E2b-Sandbox-Id: other\r\nE2b-Sandbox-Id: another\r\nE2b-Sandbox-Port: x\r\n",
    ] {
        assert_eq!(way.there(&to(HOST, headers)).await.one("host"), HOST);
        let before = format!("GET / HTTP/1.1\r\n{headers}hOST: {HOST}\r\n\r\n");
        assert_eq!(way.there(&before).await.one("host"), HOST);
    }
    // The named one is asked for even where the headers name one that exists.
    let (status, code) = way.code(to("8000-nobody.example.test", BY_HEADERS)).await;
    assert_eq!((status, &*code), (502, "sandbox_not_found"));
}

#[tokio::test]
async fn order_and_case_of_routing_headers_change_nothing() {
    let way = Way::with("").await;
    for request in [
        "GET / HTTP/1.1\r\nE2B-SANDBOX-PORT: 8000\r\nHost: localhost\r\ne2b-sandbox-id: abc\r\n\r\n",
        "GET / HTTP/1.1\r\ne2b-sandbox-id:abc\r\ne2b-sandbox-port:   8000  \r\nHOST: localhost\r\n\r\n",
    ] {
        way.there(request).await;
    }
}

#[tokio::test]
async fn routing_headers_are_needed_both_and_once() {
    let way = Way::with("").await;
    let (id, port) = ("E2b-Sandbox-Id: abc\r\n", "E2b-Sandbox-Port: 8000\r\n");
    for (headers, code) in [
        (String::new(), "missing_header"),
        (id.into(), "missing_header"),
        (port.into(), "missing_header"),
        ([id, id, port].concat(), "invalid_sandbox_id"),
        ([id, port, "E2b-Sandbox-Id: other\r\n"].concat(), "invalid_sandbox_id"),
        ([id, port, port].concat(), "invalid_port"),
        (format!("E2b-Sandbox-Id: ABC\r\n{port}"), "invalid_sandbox_id"),
        (format!("E2b-Sandbox-Id: \r\n{port}"), "invalid_sandbox_id"),
        (format!("E2b-Sandbox-Id: a.b\r\n{port}"), "invalid_sandbox_id"),
        (format!("E2b-Sandbox-Id: ../x\r\n{port}"), "invalid_sandbox_id"),
        (format!("E2b-Sandbox-Id: \u{e4}\r\n{port}"), "invalid_sandbox_id"),
        (format!("E2b-Sandbox-Id: {}\r\n{port}", "a".repeat(10_000)), "invalid_sandbox_id"),
        (format!("{id}E2b-Sandbox-Port: x\r\n"), "invalid_port"),
        (format!("{id}E2b-Sandbox-Port: 0\r\n"), "invalid_port"),
        (format!("{id}E2b-Sandbox-Port: 65536\r\n"), "invalid_port"),
        (format!("{id}E2b-Sandbox-Port: +80\r\n"), "invalid_port"),
        (format!("{id}E2b-Sandbox-Port: \r\n"), "invalid_port"),
        (format!("{id}E2b-Sandbox-Port: 80,81\r\n"), "invalid_port"),
    ] {
        for host in ["localhost:3002", "10.1.2.3", "[::1]", "sandbox.example.test"] {
            assert_eq!(way.code(to(host, &headers)).await, (400, code.into()), "{host} {headers}");
        }
    }
}

#[tokio::test]
async fn malformed_hosts_are_told_what_is_wrong() {
    let way = Way::with("").await;
    let long = format!("8000-abc.{}", "a".repeat(10_000));
    for (host, code) in [
        ("", "invalid_host"),
        ("example", "invalid_host"),
        ("8000-abc", "invalid_host"),
        ("abc.example.test", "invalid_host"),
        ("abcd-abc.example.test", "invalid_port"),
        ("70000-abc.example.test", "invalid_port"),
        ("0-abc.example.test", "invalid_port"),
        ("-abc.example.test", "invalid_port"),
        ("-1-abc.example.test", "invalid_port"),
        ("+80-abc.example.test", "invalid_host"),
        ("8000-.example.test", "invalid_sandbox_id"),
        ("8000--abc.example.test", "invalid_sandbox_id"),
        ("8000-a_c.example.test", "invalid_sandbox_id"),
        ("8000-abc..test", "invalid_host"),
        (".8000-abc.example.test", "invalid_host"),
        ("8000-abc.example.test..", "invalid_host"),
        ("..", "invalid_host"),
        (".", "invalid_host"),
        ("8000-abc.example.test:x", "invalid_host"),
        ("8000-abc.example.test:0", "invalid_host"),
        ("8000-abc.example.test:99999", "invalid_host"),
        ("8000-abc.example.test:80:80", "invalid_host"),
        ("8000-abc.exa mple.test", "invalid_host"),
        ("8000-abc.example.test/x", "invalid_host"),
        ("8000-abc.example.test, 8000-abc.example.test", "invalid_host"),
        ("user@8000-abc.example.test", "invalid_host"),
        ("8000-abc.ex\u{e4}mple.test", "invalid_host"),
        ("8000-\u{661}bc.example.test", "invalid_host"),
        ("[::1", "invalid_host"),
        ("[8000-abc.example.test]", "invalid_host"),
        (&long, "invalid_host"),
    ] {
        assert_eq!(way.code(to(host, BY_HEADERS)).await, (400, code.into()), "{host}");
    }
    // Bytes that are no UTF-8.
    let answer = way.code(b"GET / HTTP/1.1\r\nHost: 8000-abc.\xff\xfe.test\r\n\r\n").await;
    assert_eq!(answer, (400, "invalid_host".into()));
}

#[tokio::test]
async fn more_parts_in_the_first_label_and_dashes_in_the_domain_are_no_matter() {
    let way = Way::with("").await;
    for host in [
        "8000-abc-6532622b.example.test",
        "8000-abc-x-y-.example.test",
        "8000-abc.my-own-domain.test",
        "8000-abc.a.b.c.d.example.test",
        "8000-ABC.Example.Test",
        "8000-abc.example.test:3002",
        "8000-abc.example.test.",
        "08000-abc.example.test",
    ] {
        assert_eq!(way.there(&to(host, "")).await.one("host"), host);
    }
}

#[tokio::test]
async fn a_missing_or_repeated_host_is_refused() {
    let way = Way::with("").await;
    for head in [
        String::from("GET / HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{BY_HEADERS}\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX: y\r\nHost: localhost\r\n{BY_HEADERS}\r\n"),
        format!("GET http://{HOST}/ HTTP/1.1\r\n\r\n"),
        "GET / HTTP/1.0\r\nAccept: application/json\r\n\r\n".into(),
    ] {
        assert_eq!(way.code(&head).await, (400, "invalid_host".into()), "{head}");
    }
    let old = format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    assert_eq!(way.there(&old).await.line(), "GET / HTTP/1.1");
}

#[tokio::test]
async fn an_absolute_target_routes_and_goes_on_in_origin_form() {
    let way = Way::with("").await;
    for (target, host, goes_on) in [
        (format!("http://{HOST}/a/b?c=d"), HOST.into(), "/a/b?c=d"),
        (format!("http://{HOST}"), HOST.into(), "/"),
        (format!("http://{HOST}?q"), HOST.into(), "/?q"),
        (format!("HTTP://{HOST}/x"), HOST.into(), "/x"),
        (format!("https://{HOST}/x"), HOST.to_uppercase(), "/x"),
        (format!("http://{HOST}:80/x"), HOST.into(), "/x"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let seen = way.there(&request).await;
        assert_eq!(seen.line(), format!("GET {goes_on} HTTP/1.1"));
        assert!(seen.one("host").eq_ignore_ascii_case(HOST) || seen.one("host") == format!("{HOST}:80"));
    }
    // The authority of the target is what counts, and it must be what Host says.
    for (target, host) in [
        (format!("http://{HOST}/"), "8000-other.example.test"),
        (format!("http://{HOST}/"), "localhost"),
        (format!("http://{HOST}:81/"), HOST),
        ("http://localhost/".into(), HOST),
        (format!("http://user@{HOST}/"), HOST),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{BY_HEADERS}\r\n");
        assert_eq!(way.code(&request).await, (400, "invalid_host".into()), "{request}");
    }
}

#[tokio::test]
async fn the_target_goes_up_byte_for_byte() {
    let way = Way::with("").await;
    for target in
        ["/", "//", "/a//b/../c/./d", "/%2e%2e/%2F?x=%20&&y", "/?", "/a;b=c?d?e", "/a'(b)*!~$@:,", "/?a=[b]{c}|\\^`"]
    {
        let seen = way.there(&format!("GET {target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        assert_eq!(seen.line(), format!("GET {target} HTTP/1.1"));
    }
    let seen = way.there(&format!("OPTIONS * HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    assert_eq!(seen.line(), "OPTIONS * HTTP/1.1");
    for method in ["PROPFIND", "PATCH", "DELETE", "M-SEARCH"] {
        let seen = way.there(&format!("{method} /x HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        assert_eq!(seen.line(), format!("{method} /x HTTP/1.1"));
    }
}

#[tokio::test]
async fn connect_is_not_served() {
    let way = Way::with("").await;
    for target in ["8000-abc.example.test:443", "127.0.0.1:22"] {
        let answer = way.refused(format!("CONNECT {target} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        assert_eq!(answer.refusal(), (405, "method_not_allowed".into()));
        assert!(answer.head.one("allow").contains("GET"));
    }
}

#[tokio::test]
async fn only_the_configured_domains_are_served() {
    let way = Way::with("server.domains = [\"example.test\", \"own.org\"]").await;
    for host in [HOST, "8000-abc.own.org", "8000-abc.eu.own.org", "8000-abc.OWN.org.", "sandbox.elsewhere.net"] {
        way.there(&to(host, BY_HEADERS)).await;
    }
    for host in ["8000-abc.elsewhere.net", "8000-abc.notown.org", "8000-abc.own.org.evil.net", "8000-abc.org"] {
        assert_eq!(way.code(to(host, "")).await, (421, "unknown_domain".into()), "{host}");
    }
}

#[tokio::test]
async fn a_shared_host_is_rewritten_to_the_sandboxs_own() {
    let way = Way::with("server.default_port = 49983\nserver.header_hosts = [\"gate.example.test\"]").await;
    for (host, headers, own) in [
        ("sandbox.example.test", BY_HEADERS, "8000-abc.example.test"),
        ("Sandbox.example.test:3002", BY_HEADERS, "8000-abc.example.test:3002"),
        ("gate.example.test", BY_HEADERS, "8000-abc.gate.example.test"),
        ("abc.example.test", "", "49983-abc.example.test"),
    ] {
        let seen = way.there(&to(host, &format!("{headers}X-Forwarded-Host: forged\r\n"))).await;
        assert_eq!((seen.one("host"), seen.one("x-forwarded-host")), (own, host));
    }
    // Its own name, localhost and addresses have nothing to be rewritten to.
    for host in [HOST, "localhost", "10.0.0.1:3002"] {
        let seen = way.there(&to(host, &format!("{BY_HEADERS}X-Forwarded-Host: forged\r\n"))).await;
        assert_eq!((seen.one("host"), seen.has("x-forwarded-host")), (host, false));
    }
    assert_eq!(way.code(to("gate.example.test", "")).await, (400, "missing_header".into()));
}

#[tokio::test]
async fn a_shared_host_goes_up_as_it_is_where_that_is_wanted() {
    let lines = "server.default_port = 49983\nserver.header_hosts = [\"gate.example.test\"]\n\
                 upstream.rewrite_shared_host = false";
    let way = Way::with(lines).await;
    for host in ["sandbox.example.test", "gate.example.test:3002", "abc.example.test"] {
        let seen = way.there(&to(host, BY_HEADERS)).await;
        assert_eq!((seen.one("host"), seen.has("x-forwarded-host")), (host, false));
    }
}
