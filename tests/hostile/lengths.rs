//! Where a body ends by its `Content-Length` (RFC 9112 §6.3).

use crate::rows::{
    CHUNKED, HIDDEN,
    Then::{Closes, Serves, Waits},
    play, post, row,
};

fn length(value: &str, behind: &str) -> String {
    post(&format!("Content-Length:{value}\r\n"), behind)
}

#[tokio::test]
async fn a_length_is_one_number() {
    let two = |first: &str, second: &str| {
        post(&format!("Content-Length: {first}\r\nContent-Length: {second}\r\n"), &format!("abcde{HIDDEN}"))
    };
    let behind = &*format!("abcde{HIDDEN}");
    let nines = "9".repeat(30);
    play([
        row("two that differ", two("5", "0"), &[400], Closes, &[]),
        row("two that differ, the other way round", two("0", "5"), &[400], Closes, &[]),
        row("two that differ by a zero", two("5", "50"), &[400], Closes, &[]),
        row("a list", length(" 5, 5", behind), &[400], Closes, &[]),
        row("a list that differs", length(" 5, 0", behind), &[400], Closes, &[]),
        row("a plus", length(" +5", behind), &[400], Closes, &[]),
        row("a minus", length(" -1", behind), &[400], Closes, &[]),
        row("minus nothing", length(" -0", behind), &[400], Closes, &[]),
        row("hexadecimal", length(" 0x5", behind), &[400], Closes, &[]),
        row("a letter", length(" 5a", behind), &[400], Closes, &[]),
        row("a fraction", length(" 5.0", behind), &[400], Closes, &[]),
        row("two numbers", length(" 5 5", behind), &[400], Closes, &[]),
        row("in quotes", length(" \"5\"", behind), &[400], Closes, &[]),
        row("empty", length("", behind), &[400], Closes, &[]),
        row("blank", length(" ", behind), &[400], Closes, &[]),
        row("beyond 64 bits", length(" 18446744073709551616", behind), &[400], Closes, &[]),
        row("thirty digits", length(&nines, behind), &[400], Closes, &[]),
        row("more than anybody sends", length(" 18446744073709551615", behind), &[431], Closes, &[]),
        row("a vertical tab before it", length(" \x0b5", behind), &[400], Closes, &[]),
        row("digits of another script", length(" ٥", behind), &[400], Closes, &[]),
    ])
    .await;
}

#[tokio::test]
async fn a_length_is_told_on_as_one_and_nothing_behind_the_body_is_part_of_it() {
    let next = format!("GET /next HTTP/1.1\r\nHost: {}\r\n\r\n", crate::support::wire::HOST);
    play([
        row(
            "equal ones",
            post("Content-Length: 5\r\nContent-Length: 5\r\n", "abcde"),
            &[200],
            Serves,
            &["POST / abcde"],
        ),
        row("blanks around it", length("  5 ", "abcde"), &[200], Serves, &["POST / abcde"]),
        row("a tab before it", length("\t5\t", "abcde"), &[200], Serves, &["POST / abcde"]),
        row("leading zeros", length(" 00005", "abcde"), &[200], Serves, &["POST / abcde"]),
        row("a request as the body", length(&format!(" {}", HIDDEN.len()), HIDDEN), &[200], Serves, &[BODY]),
        row(
            "a request behind the body",
            length(" 3", &format!("abc{next}")),
            &[200, 200],
            Serves,
            &["POST / abc", "GET /next"],
        ),
        row("a body that never ends", length(" 500", HIDDEN), &[], Waits, &[PART]),
        row("GET with a body", HIDDEN_IN_GET, &[200], Serves, &["GET / GET /hidden HTTP/1.1"]),
    ])
    .await;
}

const HIDDEN_IN_GET: &str =
    "GET / HTTP/1.1\r\nHost: 8000-abc.example.test\r\nContent-Length: 20\r\n\r\nGET /hidden HTTP/1.1";
const BODY: &str = "POST / GET /hidden HTTP/1.1\r\nHost: 8000-abc.example.test";
const PART: &str = "~POST / GET /hidden HTTP/1.1\r\nHost: 8000-abc.example.test";

/// RFC 9112 §6.3: chunks win, the length goes, and nothing is read behind such a message.
#[tokio::test]
async fn a_length_beside_chunks_counts_for_nothing() {
    let smuggled = format!("0\r\n\r\n{HIDDEN}");
    let chunk = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    play([
        row("CL.TE", post(&format!("Content-Length: 6\r\n{CHUNKED}"), &smuggled), &[200], Closes, &["POST /"]),
        row("TE.CL", post(&format!("{CHUNKED}Content-Length: 4\r\n"), &chunk), &[200], Closes, &[BODY]),
        row(
            "the length of all",
            post(&format!("Content-Length: 99\r\n{CHUNKED}"), &smuggled),
            &[200],
            Closes,
            &["POST /"],
        ),
        row(
            "no length of any kind",
            post(&format!("{CHUNKED}Content-Length: x\r\n"), &smuggled),
            &[200],
            Closes,
            &["POST /"],
        ),
        row("no length, before", post(&format!("Content-Length: x\r\n{CHUNKED}"), &smuggled), &[400], Closes, &[]),
        row(
            "two that differ, behind",
            post(&format!("{CHUNKED}Content-Length: 1\r\nContent-Length: 2\r\n"), &smuggled),
            &[200],
            Closes,
            &["POST /"],
        ),
        row(
            "kept alive",
            post(&format!("Connection: keep-alive\r\nContent-Length: 6\r\n{CHUNKED}"), &smuggled),
            &[200],
            Closes,
            &["POST /"],
        ),
    ])
    .await;
}
