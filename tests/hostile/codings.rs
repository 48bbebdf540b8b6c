//! `Transfer-Encoding` (RFC 9112 §6.1): `chunked`, once, or nothing.

use crate::{
    rows::{
        HIDDEN,
        Then::{Closes, Serves},
        play, post, row,
    },
    support::wire::HOST,
};

fn coded(fields: &str) -> String {
    post(&format!("{fields}\r\n"), &format!("0\r\n\r\n{HIDDEN}"))
}

fn alone(value: &str) -> String {
    post(&format!("Transfer-Encoding:{value}\r\n"), "3\r\nabc\r\n0\r\n\r\n")
}

#[tokio::test]
async fn another_coding_than_chunked_is_refused() {
    let te = |value: &str| coded(&format!("Transfer-Encoding: {value}"));
    let both = |one: &str, two: &str| coded(&format!("Transfer-Encoding: {one}\r\nTransfer-Encoding: {two}"));
    let old = format!("POST / HTTP/1.0\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}");
    play([
        row("gzip, chunked", te("gzip, chunked"), &[501], Closes, &[]),
        row("gzip and chunked, two fields", both("gzip", "chunked"), &[501], Closes, &[]),
        row("identity, chunked", te("identity, chunked"), &[501], Closes, &[]),
        row("x-chunked, chunked", te("x-chunked, chunked"), &[501], Closes, &[]),
        row("a parameter, then chunked", te("a;b=\"c, d\", chunked"), &[501], Closes, &[]),
        row("chunked, chunked", te("chunked, chunked"), &[400], Closes, &[]),
        row("chunked twice", both("chunked", "chunked"), &[400], Closes, &[]),
        row("an empty member before", te(", chunked"), &[400], Closes, &[]),
        row("an empty member behind", te("chunked,"), &[400], Closes, &[]),
        row("an empty field before", both("", "chunked"), &[400], Closes, &[]),
        row("chunked, gzip", te("chunked, gzip"), &[400], Closes, &[]),
        row("chunked and gzip, two fields", both("chunked", "gzip"), &[400], Closes, &[]),
        row("chunked, identity", te("chunked, identity"), &[400], Closes, &[]),
        row("gzip", te("gzip"), &[400], Closes, &[]),
        row("identity", te("identity"), &[400], Closes, &[]),
        row("identity with a length", coded("Transfer-Encoding: identity\r\nContent-Length: 5"), &[400], Closes, &[]),
        row("gzip with a length", coded("Content-Length: 5\r\nTransfer-Encoding: gzip"), &[400], Closes, &[]),
        row("xchunked", te("xchunked"), &[400], Closes, &[]),
        row("chunkedx", te("chunkedx"), &[400], Closes, &[]),
        row("in quotes", te("\"chunked\""), &[400], Closes, &[]),
        row("with a parameter", te("chunked;q=1"), &[400], Closes, &[]),
        row("a vertical tab", te("\x0bchunked"), &[400], Closes, &[]),
        row("a form feed behind", te("chunked\x0c"), &[400], Closes, &[]),
        row("a no-break space", te("chunked\u{a0}"), &[400], Closes, &[]),
        row("empty", te(""), &[400], Closes, &[]),
        row("space before the colon", coded("Transfer-Encoding : chunked"), &[400], Closes, &[]),
        row("tab before the colon", coded("Transfer-Encoding\t: chunked"), &[400], Closes, &[]),
        row("a folded line", coded("Transfer-Encoding:\r\n chunked"), &[400], Closes, &[]),
        row("HTTP/1.0", old, &[400], Closes, &[]),
    ])
    .await;
}

#[tokio::test]
async fn chunked_is_chunked_however_it_is_written() {
    play([
        row("a tab before", alone("\tchunked"), &[200], Serves, &["POST / abc"]),
        row("a tab behind", alone(" chunked\t"), &[200], Serves, &["POST / abc"]),
        row("capitals", alone(" CHUNKED"), &[200], Serves, &["POST / abc"]),
        row("no blank", alone("chunked"), &[200], Serves, &["POST / abc"]),
    ])
    .await;
}
