//! Which sandbox is meant (RFC 9112 §3.2), where a request says two things or nonsense.

use crate::{
    rows::{Then::Serves, bare, play, row},
    support::wire::HOST,
};

fn host(host: &str) -> String {
    bare(&format!("GET / HTTP/1.1\r\nHost: {host}"))
}

fn absolute(target: &str, host: &str) -> String {
    bare(&format!("GET {target} HTTP/1.1\r\nHost: {host}"))
}

#[tokio::test]
async fn a_request_has_one_host() {
    let long = format!("8000-abc.{}test", "a.".repeat(5000));
    play([
        row("none", bare("GET / HTTP/1.1"), &[400], Serves, &[]),
        row("empty", host(""), &[400], Serves, &[]),
        row("two", host(&format!("{HOST}\r\nHost: 8000-other.example.test")), &[400], Serves, &[]),
        row("twice the same", host(&format!("{HOST}\r\nHost: {HOST}")), &[400], Serves, &[]),
        row("a list", host(&format!("{HOST}, {HOST}")), &[400], Serves, &[]),
        row("user information", host(&format!("user@{HOST}")), &[400], Serves, &[]),
        row("user and password", host(&format!("a:b@{HOST}")), &[400], Serves, &[]),
        row("a path", host(&format!("{HOST}/a")), &[400], Serves, &[]),
        row("a query", host(&format!("{HOST}?a")), &[400], Serves, &[]),
        row("a fragment", host(&format!("{HOST}#a")), &[400], Serves, &[]),
        row("a URL", host(&format!("http://{HOST}")), &[400], Serves, &[]),
        row("a backslash", host(&format!("{HOST}\\a")), &[400], Serves, &[]),
        row("a blank inside", host("8000-abc. example.test"), &[400], Serves, &[]),
        row("two ports", host(&format!("{HOST}:80:80")), &[400], Serves, &[]),
        row("port 0", host(&format!("{HOST}:0")), &[400], Serves, &[]),
        row("port 65536", host(&format!("{HOST}:65536")), &[400], Serves, &[]),
        row("port +80", host(&format!("{HOST}:+80")), &[400], Serves, &[]),
        row("10 kB", host(&long), &[400], Serves, &[]),
        row("beyond ASCII", host("8000-abc.exämple.test"), &[400], Serves, &[]),
        row("escaped", host("8000-abc%2eexample.test"), &[400], Serves, &[]),
        row("an empty label", host("8000-abc..test"), &[400], Serves, &[]),
        row("only a dot", host("."), &[400], Serves, &[]),
        row("half an IPv6 address", host("[::1"), &[400], Serves, &[]),
        row("a zone", host("[fe80::1%25eth0]"), &[400], Serves, &[]),
        row("sandbox port 0", host("0-abc.example.test"), &[400], Serves, &[]),
        row("sandbox port 65536", host("65536-abc.example.test"), &[400], Serves, &[]),
        row("no sandbox", host("8000-.example.test"), &[400], Serves, &[]),
        row("a sandbox with an underscore", host("8000-a_c.example.test"), &[400], Serves, &[]),
        row("another one's sandbox", host("8000-other.example.test"), &[502], Serves, &[]),
        row("capitals and a dot", host("8000-ABC.Example.Test."), &[200], Serves, &["GET /"]),
    ])
    .await;
}

#[tokio::test]
async fn a_target_and_its_host_agree() {
    let url = |rest: &str| format!("http://{HOST}{rest}");
    play([
        row("they differ", absolute("http://8000-other.example.test/", HOST), &[400], Serves, &[]),
        row("in the port", absolute(&url(":81/"), HOST), &[400], Serves, &[]),
        row("by user information", absolute(&format!("http://a@{HOST}/"), HOST), &[400], Serves, &[]),
        row("no Host", bare(&format!("GET {} HTTP/1.1", url("/"))), &[400], Serves, &[]),
        row("an empty Host", absolute(&url("/"), ""), &[400], Serves, &[]),
        row("two Hosts", absolute(&url("/"), &format!("{HOST}\r\nHost: {HOST}")), &[400], Serves, &[]),
        row("a file", absolute("file:///etc/passwd", HOST), &[400], crate::rows::Then::Closes, &[]),
        row("they agree", absolute(&url("/a?b"), HOST), &[200], Serves, &["GET /a?b"]),
        row("but for the default port", absolute(&url(":80"), HOST), &[200], Serves, &["GET /"]),
        row("another scheme", absolute(&format!("ftp://{HOST}/a"), HOST), &[200], Serves, &["GET /a"]),
        row(
            "two slashes",
            absolute("//8000-other.example.test/a", HOST),
            &[200],
            Serves,
            &["GET //8000-other.example.test/a"],
        ),
        row(
            "a URL in the path",
            absolute("/http://8000-other.example.test/", HOST),
            &[200],
            Serves,
            &["GET /http://8000-other.example.test/"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn only_a_shared_host_lets_fields_route_and_each_only_once() {
    let routed = |host: &str, fields: &str| bare(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n{fields}"));
    let both = "E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 8000";
    let other = "E2b-Sandbox-Id: other\r\nE2b-Sandbox-Port: 8000";
    play([
        row("a sandbox's own Host wins", routed(HOST, other), &[200], Serves, &["GET /"]),
        row("it wins over two ids", routed(HOST, &format!("{both}\r\n{both}")), &[200], Serves, &["GET /"]),
        row("two ids", routed("localhost", &format!("{both}\r\nE2b-Sandbox-Id: other")), &[400], Serves, &[]),
        row("the same id twice", routed("localhost", &format!("{both}\r\nE2b-Sandbox-Id: abc")), &[400], Serves, &[]),
        row("two ports", routed("localhost", &format!("{both}\r\nE2b-Sandbox-Port: 1")), &[400], Serves, &[]),
        row(
            "a list of ids",
            routed("localhost", "E2b-Sandbox-Id: abc, abc\r\nE2b-Sandbox-Port: 1"),
            &[400],
            Serves,
            &[],
        ),
        row("a path as id", routed("localhost", "E2b-Sandbox-Id: ../abc\r\nE2b-Sandbox-Port: 1"), &[400], Serves, &[]),
        row(
            "a sign before the port",
            routed("localhost", "E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: +80"),
            &[400],
            Serves,
            &[],
        ),
        row("no port", routed("localhost", "E2b-Sandbox-Id: abc"), &[400], Serves, &[]),
        row("one of each", routed("localhost", both), &[200], Serves, &["GET /"]),
    ])
    .await;
}
