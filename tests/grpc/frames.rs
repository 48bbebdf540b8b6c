//! A sandbox that speaks HTTP/2 frame by frame (RFC 9113 §4): for what no well-behaved server would do, and for
//! the order in which things happen.

use crate::support::{Raw, wire::Node};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Error codes (RFC 9113 §7).
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

/// `:status: 200`
pub(crate) const OK: &[u8] = &[0x88];

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// One connection, on the sandbox's side.
pub(crate) struct Peer {
    pub(crate) socket: Raw,
}

impl Peer {
    /// The next connection, whose client knows now that it may begin.
    pub(crate) async fn accept(node: &Node) -> Self {
        let mut peer = Self::greet(node.accept().await).await;
        peer.write(SETTINGS, 0, 0, &[]).await;
        peer
    }

    /// It is greeted, and says nothing.
    pub(crate) async fn greet(mut socket: Raw) -> Self {
        assert_eq!(socket.exactly(24).await, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self { socket }
    }

    pub(crate) async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.socket.write([&head[..], payload].concat()).await;
    }

    pub(crate) async fn next(&mut self) -> Frame {
        let head = self.socket.exactly(9).await;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let payload = self.socket.exactly(number(&head[..3]) as usize).await;
        Frame { kind: head[3], flags: head[4], stream: number(&head[5..]), payload }
    }

    /// The next frame of this kind; SETTINGS and PING before it are acknowledged.
    pub(crate) async fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await;
            if frame.kind == kind {
                return frame;
            }
            if matches!(frame.kind, SETTINGS | PING) && frame.flags & 1 == 0 {
                let payload = if frame.kind == PING { frame.payload } else { Vec::new() };
                self.write(frame.kind, 1, 0, &payload).await;
            }
        }
    }

    /// The next frame of another kind.
    pub(crate) async fn next_but(&mut self, kinds: &[u8]) -> Frame {
        loop {
            let frame = self.next().await;
            if !kinds.contains(&frame.kind) {
                return frame;
            }
        }
    }

    /// The stream of the next request.
    pub(crate) async fn headers(&mut self) -> u32 {
        self.next_of(HEADERS).await.stream
    }

    /// The whole answer, 200.
    pub(crate) async fn answer(&mut self, stream: u32, body: &[u8]) {
        self.write(HEADERS, END_HEADERS, stream, OK).await;
        self.write(DATA, END_STREAM, stream, body).await;
    }

    /// The answer of a node that does not have the sandbox.
    pub(crate) async fn disowns(&mut self, stream: u32, text: &str) {
        // `:status: 502`, `content-type` and `content-length`, by their indices (RFC 7541, appendix A).
        let field = |index: &[u8], value: &str| {
            [index, &[u8::try_from(value.len()).expect("short")], value.as_bytes()].concat()
        };
        let kind = field(&[0x0f, 0x10], "application/json; charset=utf-8");
        let head = [field(&[8], "502"), kind, field(&[0x0f, 0x0d], &text.len().to_string())].concat();
        self.write(HEADERS, END_HEADERS, stream, &head).await;
        self.write(DATA, END_STREAM, stream, text.as_bytes()).await;
    }

    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.write(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// No stream after `last` has been looked at, and none will be.
    pub(crate) async fn go_away(&mut self, last: u32) {
        self.write(GOAWAY, 0, 0, &[last.to_be_bytes(), NO_ERROR.to_be_bytes()].concat()).await;
    }

    /// The next stream that is reset, and why.
    pub(crate) async fn is_reset(&mut self) -> (u32, u32) {
        let frame = self.next_of(RST_STREAM).await;
        (frame.stream, u32::from_be_bytes(frame.payload.try_into().expect("a code")))
    }
}
