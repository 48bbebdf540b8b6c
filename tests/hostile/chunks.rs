//! Chunks (RFC 9112 §7.1): a malformed body is aborted upstream, never ended.

use crate::{
    rows::{
        CHUNKED, HIDDEN,
        Then::{Closes, Serves, Waits},
        play, post, row,
    },
    support::wire::HOST,
};

fn chunks(body: &str) -> String {
    post(CHUNKED, body)
}

#[tokio::test]
async fn a_malformed_chunk_aborts_the_request() {
    let behind = format!("0\r\n\r\n{HIDDEN}");
    let bad = |chunk: &str| chunks(&format!("3\r\nabc\r\n{chunk}{behind}"));
    play([
        row("no number", bad("x\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("0x", bad("0x3\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("a plus", bad("+3\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("a minus", bad("-3\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("a blank before", bad(" 3\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("an empty size", bad("\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("only an extension", bad(";a=b\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("two numbers", bad("3 3\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("an underscore", bad("1_0\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("beyond 64 bits", bad("10000000000000003\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("thirty digits", bad(&format!("{}\r\n", "f".repeat(30))), &[400], Closes, &["~POST / abc"]),
        row("too short", bad("2\r\nabc\r\n"), &[400], Closes, &["~POST / abcab"]),
        row("too long", bad("4\r\nabc\r\n"), &[400], Closes, &["~POST / abcabc"]),
        row("a bare LF behind the size", bad("3\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("a bare CR behind the size", bad("3\rabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("a bare LF behind the data", bad("3\r\nabc\n"), &[400], Closes, &["~POST / abcabc"]),
        row("a bare CR behind the data", bad("3\r\nabc\r"), &[400], Closes, &["~POST / abcabc"]),
        row("nothing behind the data", bad("3\r\nabc"), &[400], Closes, &["~POST / abcabc"]),
        row("a bare LF in an extension", bad("3;a\nb\r\nabc\r\n"), &[400], Closes, &["~POST / abc"]),
        row("no end", chunks("3\r\nabc\r\n"), &[], Waits, &["~POST / abc"]),
        row("half a chunk", chunks("5\r\nab"), &[], Waits, &["~POST / ab"]),
    ])
    .await;
}

#[tokio::test]
async fn nobody_sends_megabytes_beside_the_data() {
    let much = "x".repeat(2 << 20);
    let many = "x: y\r\n".repeat(1000);
    play([
        row("an extension", chunks(&format!("3;{much}\r\nabc\r\n0\r\n\r\n{HIDDEN}")), &[400], Closes, &["?~POST /"]),
        row(
            "many extensions",
            chunks(&("1;abcdefghij\r\na\r\n".repeat(4000) + "0\r\n\r\n")),
            &[400],
            Closes,
            &["~POST / aaa…"],
        ),
        row("a trailer", chunks(&format!("3\r\nabc\r\n0\r\nX-A: {much}\r\n\r\n")), &[400], Closes, &["~POST / abc"]),
        row("many trailers", chunks(&format!("3\r\nabc\r\n0\r\n{many}\r\n")), &[400], Closes, &["~POST / abc"]),
        row(
            "leading zeros",
            chunks(&format!("{}3\r\nabc\r\n0\r\n\r\n", "0".repeat(1 << 20))),
            &[200],
            Serves,
            &["POST / abc"],
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_is_no_part_of_the_data_stays_here() {
    let trailers = |fields: &str| {
        post(
            &format!(
                "{CHUNKED}TE: trailers\r\nTrailer: X-A, Content-Length, Host, Transfer-Encoding, E2b-Sandbox-Id\r\n"
            ),
            &format!("3\r\nabc\r\n0\r\n{fields}\r\n"),
        )
    };
    let next = format!("3\r\nabc\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    // What is behind trailers can be read in two ways, if a bare LF is among them: so nobody here reads it.
    let nobody = chunks(&format!("0\r\n\n{HIDDEN}")).replacen("abc", "nobody", 1);
    play([
        row("an extension", chunks("3;a=\"b;c\"\r\nabc\r\n0;d\r\n\r\n"), &[200], Serves, &["POST / abc"]),
        row("a blank behind the size", chunks("3 \r\nabc\r\n0 \r\n\r\n"), &[200], Serves, &["POST / abc"]),
        row("zeros", chunks("0003\r\nabc\r\n000\r\n\r\n"), &[200], Serves, &["POST / abc"]),
        row("a trailer", trailers("X-A: 1\r\n"), &[200], Closes, &["POST / abc"]),
        row("a length as a trailer", trailers("Content-Length: 9\r\n"), &[200], Closes, &["POST / abc"]),
        row("a coding as a trailer", trailers("Transfer-Encoding: chunked\r\n"), &[200], Closes, &["POST / abc"]),
        row("a Host as a trailer", trailers("Host: 1-other.example.test\r\n"), &[200], Closes, &["POST / abc"]),
        row("routing as a trailer", trailers("E2b-Sandbox-Id: other\r\n"), &[200], Closes, &["POST / abc"]),
        row("a bare LF in trailers", trailers(&format!("X-A: 1\n\r\n{HIDDEN}")), &[200], Closes, &["POST / abc"]),
        row(
            "a bare LF instead of trailers",
            chunks(&format!("3\r\nabc\r\n0\r\n\n{HIDDEN}")),
            &[200],
            Closes,
            &["POST / abc"],
        ),
        row("the same of a refused one", nobody, &[502], Closes, &[]),
        row("the next request", chunks(&next), &[200, 200], Serves, &["POST / abc", "GET /next"]),
    ])
    .await;
}
