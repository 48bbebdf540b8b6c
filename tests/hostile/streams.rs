//! HTTP/2 requests that are malformed (RFC 9113 §8): their stream ends, nothing of them goes to a sandbox, and the
//! connection serves on.

use crate::{
    frames::{
        DATA, END_HEADERS, END_STREAM, FRAME_SIZE_ERROR, Fate,
        Fate::{Answer, GoAway, Reset},
        Frames, HEADERS, PROTOCOL_ERROR, block, frame,
    },
    rows::is_as_wanted,
    sandbox::Sandbox,
    support::{
        Proxy,
        wire::{HOST, node_mode},
    },
};

type Field<'a> = (&'a str, &'a str);

const GET: [Field<'_>; 4] = [(":method", "GET"), (":scheme", "http"), (":authority", HOST), (":path", "/")];

/// A whole request of these fields.
fn whole(fields: &[Field<'_>]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, block(fields.iter().copied()))
}

/// `GET /` and another field.
fn with(name: &str, value: &str) -> Vec<u8> {
    whole(&[&GET[..], &[(name, value)]].concat())
}

/// `GET /` without a field.
fn without(name: &str) -> Vec<u8> {
    whole(&GET.into_iter().filter(|field| field.0 != name).collect::<Vec<_>>())
}

/// `GET /` with one field's value changed.
fn changed(name: &str, value: &str) -> Vec<u8> {
    whole(&GET.map(|field| if field.0 == name { (name, value) } else { field }))
}

/// `POST /` with a length and these DATA frames, the last of which ends it.
fn upload(length: &str, data: &[&str]) -> Vec<u8> {
    let mut fields = GET.to_vec();
    fields[0].1 = "POST";
    fields.push(("content-length", length));
    let mut bytes = frame(HEADERS, END_HEADERS, 1, block(fields));
    let mut left = data.len();
    for data in data {
        left -= 1;
        bytes.extend(frame(DATA, u8::from(left == 0), 1, data));
    }
    bytes
}

struct Row(&'static str, Vec<u8>, Fate, &'static [&'static str]);

/// Each on a connection of its own; then `GET /after` on the same one, unless it ended.
async fn play(rows: impl IntoIterator<Item = Row>) {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, ""));
    let mut faults = Vec::new();
    for Row(name, sent, want, want_seen) in rows {
        let mut client = Frames::connect(proxy.address).await;
        client.send(sent).await;
        let fate = client.fate(1).await;
        let over = matches!(fate, GoAway(_) | Fate::Ended);
        if over {
            client.end().await;
        } else {
            client.get(99, HOST, "/after").await;
            assert_eq!(client.fate(99).await, Answer(200), "{name}: the next request");
        }
        drop(client);
        assert_eq!(proxy.get(8000, "abc", "/sentinel").await.text(), "ok");
        proxy.is_idle().await;
        let mut seen = sandbox.takes(name).await;
        assert_eq!(seen.iter().filter(|seen| *seen == "GET /after").count(), usize::from(!over), "{name}");
        seen.retain(|seen| seen != "GET /after" && seen != "GET /sentinel");
        if fate != want || !is_as_wanted(&seen, want_seen) {
            faults.push(format!("{name}:\n   got {fate:?} {seen:?}\n  want {want:?} {want_seen:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

const MALFORMED: Fate = Reset(PROTOCOL_ERROR);
/// A field that cannot be decoded costs the whole connection, as it may (RFC 9113 §5.4.1): h2 does so.
const UNREADABLE: Fate = GoAway(PROTOCOL_ERROR);

#[tokio::test]
async fn pseudo_fields_are_there_once_and_first() {
    let moved = [GET[0], GET[1], ("x-a", "1"), GET[2], GET[3]];
    play([
        Row("no method", without(":method"), MALFORMED, &[]),
        Row("no path", without(":path"), MALFORMED, &[]),
        Row("an empty path", changed(":path", ""), MALFORMED, &[]),
        Row("no scheme", without(":scheme"), MALFORMED, &[]),
        Row("no authority", without(":authority"), Answer(400), &[]),
        Row("an empty authority", changed(":authority", ""), MALFORMED, &[]),
        Row("two methods", with(":method", "GET"), MALFORMED, &[]),
        Row("two paths", with(":path", "/"), MALFORMED, &[]),
        Row("two authorities", with(":authority", HOST), MALFORMED, &[]),
        Row("behind another field", whole(&moved), MALFORMED, &[]),
        Row("an unknown one", with(":sandbox", "abc"), UNREADABLE, &[]),
        Row("an answer's", with(":status", "200"), MALFORMED, &[]),
        Row("a protocol without CONNECT", with(":protocol", "websocket"), MALFORMED, &[]),
        Row("an empty method", changed(":method", ""), UNREADABLE, &[]),
        Row("a blank in the method", changed(":method", "GET / HTTP/1.1\r\nX: "), UNREADABLE, &[]),
        Row("a relative path", changed(":path", "a"), MALFORMED, &[]),
        Row("a blank in the path", changed(":path", "/ HTTP/1.1"), MALFORMED, &[]),
        Row("CRLF in the path", changed(":path", "/\r\nX: y"), MALFORMED, &[]),
        Row("a NUL in the path", changed(":path", "/\0"), MALFORMED, &[]),
        Row("a URL as path", changed(":path", "http://8000-other.example.test/"), MALFORMED, &[]),
        Row("CRLF in the authority", changed(":authority", "8000-abc.example.test\r\nX: y"), MALFORMED, &[]),
        Row("user information", changed(":authority", "a@8000-abc.example.test"), Answer(400), &[]),
        Row("a path in the authority", changed(":authority", "8000-abc.example.test/a"), MALFORMED, &[]),
        Row("another Host", with("host", "8000-other.example.test"), Answer(400), &[]),
        Row("two Hosts", whole(&[&GET[..], &[("host", HOST), ("host", HOST)]].concat()), Answer(400), &[]),
        Row("the same Host", with("host", HOST), Answer(200), &["GET /"]),
        Row("an odd scheme", changed(":scheme", "ftp"), Answer(200), &["GET /"]),
        Row("a fragment", changed(":path", "/a#b"), Answer(200), &["GET /a"]),
        Row("CONNECT", whole(&[(":method", "CONNECT"), (":authority", "10.0.0.1:80")]), Answer(405), &[]),
        Row("CONNECT with a path", changed(":method", "CONNECT"), MALFORMED, &[]),
    ])
    .await;
}

#[tokio::test]
async fn fields_of_one_connection_or_of_no_form_are_malformed() {
    play([
        Row("a capital", with("X-a", "1"), UNREADABLE, &[]),
        Row("Connection", with("connection", "keep-alive"), MALFORMED, &[]),
        Row("Keep-Alive", with("keep-alive", "timeout=5"), MALFORMED, &[]),
        Row("Proxy-Connection", with("proxy-connection", "close"), MALFORMED, &[]),
        Row("Transfer-Encoding", with("transfer-encoding", "chunked"), MALFORMED, &[]),
        Row("Upgrade", with("upgrade", "websocket"), MALFORMED, &[]),
        Row("TE", with("te", "gzip"), MALFORMED, &[]),
        Row("TE: trailers", with("te", "trailers"), Answer(200), &["GET /"]),
        Row("no name", with("", "1"), UNREADABLE, &[]),
        Row("a blank in a name", with("x a", "1"), UNREADABLE, &[]),
        Row("a colon in a name", with("x:a", "1"), UNREADABLE, &[]),
        Row("CRLF in a name", with("x\r\na", "1"), UNREADABLE, &[]),
        Row("a NUL in a name", with("x\0", "1"), UNREADABLE, &[]),
        Row("CR in a value", with("x-a", "1\r2"), UNREADABLE, &[]),
        Row("CRLF in a value", with("x-a", "1\r\ncontent-length: 5"), UNREADABLE, &[]),
        Row("LF in a value", with("x-a", "1\n2"), UNREADABLE, &[]),
        Row("a NUL in a value", with("x-a", "1\0"), UNREADABLE, &[]),
    ])
    .await;
}

#[tokio::test]
async fn a_length_that_is_not_the_bodys_aborts_the_request() {
    let head_only = with("content-length", "5");
    let two = whole(&[&GET[..], &[("content-length", "0"), ("content-length", "5")]].concat());
    let behind = [whole(&GET), frame(DATA, END_STREAM, 1, "abc")].concat();
    play([
        Row("nothing of it", head_only, MALFORMED, &[]),
        Row("two that differ", two, MALFORMED, &[]),
        Row("no number", upload("x", &["abc"]), MALFORMED, &[]),
        Row("too short", upload("5", &["abc"]), MALFORMED, &["?~POST / abc"]),
        Row("too long", upload("3", &["abcde"]), MALFORMED, &["?~POST /"]),
        Row("too long, in the second frame", upload("3", &["abc", "de"]), MALFORMED, &["?~POST /"]),
        Row("right", upload("5", &["abc", "de"]), Answer(200), &["POST / abcde"]),
        Row("data behind the end", behind, UNREADABLE, &["?~GET /"]),
    ])
    .await;
}

#[tokio::test]
async fn a_head_is_bounded_however_it_is_compressed() {
    let large = "a".repeat(15_000);
    let fields = block((0..6).map(|_| ("x-a", &*large)));
    let mut all = block(GET);
    all.extend(fields);
    let mut parts = all.chunks(16_000);
    let mut pieces = frame(HEADERS, END_STREAM, 1, parts.next().expect("a beginning"));
    let last = parts.len();
    for (n, part) in parts.enumerate() {
        pieces.extend(frame(crate::frames::CONTINUATION, if n + 1 == last { END_HEADERS } else { 0 }, 1, part));
    }
    // One entry of the table, named again and again.
    let mut bomb = block(GET);
    bomb.extend([&[0x40, 1, b'x', 0x7f, 0x81, 0x1e][..], &[b'a'; 4000]].concat());
    bomb.extend([0xbe; 2000]);
    let garbage = frame(HEADERS, END_HEADERS | END_STREAM, 1, [0xff; 100]);
    play([
        Row("90 kB", pieces, Answer(431), &[]),
        Row("8 MB out of 6 kB", frame(HEADERS, END_HEADERS | END_STREAM, 1, bomb), Answer(431), &[]),
        Row("garbage", garbage, UNREADABLE, &[]),
        Row("a frame beyond 16 KiB", frame(HEADERS, END_HEADERS, 1, vec![0; 16_385]), GoAway(FRAME_SIZE_ERROR), &[]),
    ])
    .await;
}
