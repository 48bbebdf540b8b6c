//! HTTP/2 frame by frame (RFC 9113 §4, RFC 7541): for what no library would send.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::support::{PATIENCE, Raw};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const ACK: u8 = 1;

pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const CANCEL: u32 = 8;
pub const COMPRESSION_ERROR: u32 = 9;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// One frame, whether it makes sense or not.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).expect("a frame's length").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block: literals that nobody indexes, not compressed.
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            integer(&mut block, text.len());
            block.extend(text);
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of seven bits that are not preceded by anything.
fn integer(block: &mut Vec<u8>, mut number: usize) {
    let mut push = |number: usize| block.push(u8::try_from(number).expect("a byte"));
    if number < 127 {
        return push(number);
    }
    push(127);
    number -= 127;
    while number >= 128 {
        push(number % 128 + 128);
        number /= 128;
    }
    push(number);
}

/// What became of a stream, or of the connection before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Answer(u16),
    Reset(u32),
    GoAway(u32),
    /// The connection ended, and nothing was said.
    Ended,
}

/// A frame that was read.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A client's connection.
pub struct Frames(pub Raw);

impl Frames {
    /// With both prefaces exchanged, and no dynamic table, so that answers can be read here.
    pub async fn connect(address: SocketAddr) -> Self {
        let mut raw = Raw::connect(address).await;
        raw.write([PREFACE, &frame(SETTINGS, 0, 0, [0, 1, 0, 0, 0, 0])].concat()).await;
        let mut frames = Self(raw);
        assert_eq!(frames.next().await.expect("the proxy's preface").kind, SETTINGS);
        frames.send(frame(SETTINGS, ACK, 0, [])).await;
        frames
    }

    /// Sends it, however little the proxy wants to hear.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = timeout(PATIENCE, self.0.0.write_all(bytes.as_ref())).await.expect("a proxy that reads or leaves");
    }

    /// A whole request without body.
    pub async fn get(&mut self, stream: u32, authority: &str, path: &str) {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", path)];
        self.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, block(fields))).await;
    }

    /// The next frame; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        let read = async {
            let mut head = [0; 9];
            self.0.0.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
            self.0.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            Some(Frame { kind: head[3], flags: head[4], stream, payload })
        };
        timeout(PATIENCE, read).await.expect("a frame in time")
    }

    /// Reads until it is known what becomes of the stream.
    pub async fn fate(&mut self, stream: u32) -> Fate {
        let code = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        while let Some(read) = self.next().await {
            match read.kind {
                HEADERS if read.stream == stream => return Fate::Answer(status(&read.payload)),
                RST_STREAM if read.stream == stream => return Fate::Reset(code(&read.payload)),
                GOAWAY if code(&read.payload[4..8]) != 0 => return Fate::GoAway(code(&read.payload[4..8])),
                _ => {}
            }
        }
        Fate::Ended
    }

    /// Waits until the connection's window is as large as the proxy makes it.
    pub async fn may_send(&mut self) {
        while !self.next().await.is_none_or(|frame| frame.kind == WINDOW_UPDATE && frame.stream == 0) {}
    }

    /// Waits for the answer to a PING: all before it has been read.
    pub async fn pong(&mut self) {
        while !self.next().await.is_none_or(|frame| frame.kind == PING && frame.flags & ACK != 0) {}
    }

    /// Reads to the end of the connection; the code of its GOAWAY, if there was one.
    pub async fn end(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                code = Some(u32::from_be_bytes(frame.payload[4..8].try_into().expect("four bytes")));
            }
        }
        code
    }
}

/// The status at the beginning of an answer's header block.
fn status(block: &[u8]) -> u16 {
    // Changes of the table's size.
    let size_of_updates = block.iter().take_while(|byte| **byte & 0xe0 == 0x20).count();
    let block = &block[size_of_updates..];
    match block[0] {
        indexed @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        0x08 | 0x18 | 0x48 if block[1] & 0x80 == 0 => {
            std::str::from_utf8(&block[2..5]).expect("digits").parse().expect("a status")
        }
        0x08 | 0x18 | 0x48 => {
            // RFC 7541 appendix B: the codes of digits have five bits or six.
            let bits: Vec<u8> =
                block[2..5].iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
            let (mut at, mut status) = (0, 0);
            for _ in 0..3 {
                let take =
                    |count: usize| bits[at..at + count].iter().fold(0_u16, |code, bit| code << 1 | u16::from(*bit));
                let (digit, length) = if take(5) < 3 { (take(5), 5) } else { (take(6) - 0x16, 6) };
                (status, at) = (status * 10 + digit, at + length);
            }
            status
        }
        other => panic!("no status: {other:#x}"),
    }
}
