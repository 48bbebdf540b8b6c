//! Request lines (RFC 9112 §3), and what is no HTTP at all.

use crate::{
    rows::{
        HIDDEN,
        Then::{Closes, Serves},
        bare, get_with, play, post, row,
    },
    support::wire::{HOST, get},
};

fn line(line: &str) -> String {
    bare(&format!("{line}\r\nHost: {HOST}"))
}

#[tokio::test]
async fn a_request_line_is_method_target_and_version() {
    let long = "A".repeat(70_000);
    play([
        row("two blanks before the target", line("GET  / HTTP/1.1"), &[400], Closes, &[]),
        row("two blanks before the version", line("GET /  HTTP/1.1"), &[400], Closes, &[]),
        row("a blank at the beginning", line(" GET / HTTP/1.1"), &[400], Closes, &[]),
        row("a blank at the end", line("GET / HTTP/1.1 "), &[400], Closes, &[]),
        row("a tab", line("GET\t/\tHTTP/1.1"), &[400], Closes, &[]),
        row("a blank in the target", line("GET /a b HTTP/1.1"), &[400], Closes, &[]),
        row("no target", line("GET HTTP/1.1"), &[400], Closes, &[]),
        row("no version", line("GET /"), &[400], Closes, &[]),
        row("HTTP/0.9", "GET /\r\n", &[400], Closes, &[]),
        row("HTTP/1.2", line("GET / HTTP/1.2"), &[400], Closes, &[]),
        row("HTTP/2.0", line("GET / HTTP/2.0"), &[400], Closes, &[]),
        row("HTTP/1.1.1", line("GET / HTTP/1.1.1"), &[400], Closes, &[]),
        row("HTTP/11", line("GET / HTTP/11"), &[400], Closes, &[]),
        row("http in lower case", line("GET / http/1.1"), &[400], Closes, &[]),
        row("another protocol", line("GET / ICY/1.1"), &[400], Closes, &[]),
        row("no token as method", line("G(T / HTTP/1.1"), &[400], Closes, &[]),
        row("a colon in the method", line("GET: / HTTP/1.1"), &[400], Closes, &[]),
        row("a NUL in the target", line("GET /\0 HTTP/1.1"), &[400], Closes, &[]),
        row("a DEL in the target", line("GET /\x7f HTTP/1.1"), &[400], Closes, &[]),
        row("a bare CR in the line", line("GET /\rHTTP/1.1"), &[400], Closes, &[]),
        row("a bare LF in the line", line("GET /\nHTTP/1.1"), &[400], Closes, &[]),
        row("a target beyond 64 KiB", line(&format!("GET /{long} HTTP/1.1")), &[414], Closes, &[]),
        row("a relative target", line("GET a HTTP/1.1"), &[400], Serves, &[]),
        row("only a query", line("GET ?a HTTP/1.1"), &[400], Closes, &[]),
        row("TRACE in lower case", line("trace / HTTP/1.1"), &[200], Serves, &["trace /"]),
        row("get in lower case", line("get / HTTP/1.1"), &[200], Serves, &["get /"]),
        row("TRACE", line("TRACE / HTTP/1.1"), &[200], Serves, &["TRACE /"]),
        row("an odd method", line("!#$%&'*+-.^_`|~ / HTTP/1.1"), &[200], Serves, &["!#$%&'*+-.^_`|~ /"]),
        row("a fragment", line("GET /a#b HTTP/1.1"), &[200], Serves, &["GET /a"]),
        row("OPTIONS for all", line("OPTIONS * HTTP/1.1"), &[200], Serves, &["OPTIONS *"]),
        row(
            "dots and escapes",
            line("GET /../%2e%2e/%00%0d%0aX:%20y HTTP/1.1"),
            &[200],
            Serves,
            &["GET /../%2e%2e/%00%0d%0aX:%20y"],
        ),
        row("empty lines before", format!("\r\n\r\n{}", get("/")), &[200], Serves, &["GET /"]),
    ])
    .await;
}

#[tokio::test]
async fn connect_is_no_request_for_a_sandbox() {
    play([
        row("authority form", line(&format!("CONNECT {HOST}:443 HTTP/1.1")) + HIDDEN, &[405], Closes, &[]),
        row("origin form", line("CONNECT / HTTP/1.1"), &[405], Closes, &[]),
        row("absolute form", line(&format!("CONNECT http://{HOST}/ HTTP/1.1")), &[405], Closes, &[]),
        row("another machine", line("CONNECT 169.254.169.254:80 HTTP/1.1"), &[405], Closes, &[]),
        row("authority form of another method", line(&format!("GET {HOST}:80 HTTP/1.1")), &[400], Serves, &[]),
    ])
    .await;
}

#[tokio::test]
async fn what_is_no_http_is_answered_by_nothing_but_400() {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let garbage: Vec<u8> = (0..=255).cycle().take(5000).collect();
    play([
        row("a ClientHello", hello, &[400], Closes, &[]),
        row("SSH", "SSH-2.0-OpenSSH_9.2\r\n\r\n", &[400], Closes, &[]),
        row("all bytes", garbage, &[400], Closes, &[]),
        row("zeros", [0; 300], &[400], Closes, &[]),
        row("an answer", "HTTP/1.1 200 OK\r\n\r\n", &[400], Closes, &[]),
        row("PROXY protocol", format!("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n{}", get("/")), &[400], Closes, &[]),
        row("an HTTP/2 preface behind a request", get("/") + preface, &[200], Closes, &["GET /"]),
        row("half a preface, then a request", "PRI * HTTP/2.0\r\n\r\n".to_owned() + HIDDEN, &[400], Closes, &[]),
        row("garbage behind a request", get("/") + "\x01\x02\x03\r\n\r\n", &[200, 400], Closes, &["GET /"]),
        row(
            "garbage behind a body",
            post("Content-Length: 3\r\n", "abcde\r\n\r\n"),
            &[200, 400],
            Closes,
            &["POST / abc"],
        ),
        row("Connection: close, and more", get_with("Connection: close\r\n") + HIDDEN, &[200], Closes, &["GET /"]),
        row(
            "HTTP/1.0, and more",
            format!("GET / HTTP/1.0\r\nHost: {HOST}\r\n\r\n{HIDDEN}"),
            &[200],
            Closes,
            &["GET /"],
        ),
    ])
    .await;
}
