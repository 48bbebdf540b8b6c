//! Whether an HTTP/2 client is in the middle of a head. hyper tells nothing of a header block (RFC 9113 §4.3) before
//! its end, and while one is open the connection can do nothing else: so the frames are counted as they are read.

use std::{cell::Cell, rc::Rc};

use tokio::{io::AsyncRead, time::Instant};
use tokio_util::io::InspectReader;

/// Since when the client is in a header block, if it is.
#[derive(Clone, Default)]
pub(crate) struct OpenBlock(Rc<Cell<Option<Instant>>>);

impl OpenBlock {
    pub(crate) fn since(&self) -> Option<Instant> {
        self.0.get()
    }
}

/// A connection whose frames are counted, and whose preface has not been read.
pub(crate) fn counted<T: AsyncRead>(
    transport: T,
    open: OpenBlock,
) -> InspectReader<T, impl FnMut(&[u8]) + Unpin + 'static> {
    let mut frames = Frames::default();
    InspectReader::new(transport, move |bytes| {
        let ended = frames.read(bytes);
        // A head that is there at once, as nearly all are, costs no look at the clock. One that begins where another
        // ended has its own time.
        let before = open.since().filter(|_| !ended);
        open.0.set(frames.in_block.then(|| before.unwrap_or_else(Instant::now)));
    })
}

const PREFACE_LENGTH: usize = 24;
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Where in the frames the client is.
struct Frames {
    /// Bytes to the end of the preface or of a frame.
    left: usize,
    head: [u8; FRAME_HEAD],
    /// How much of the next frame's head is there.
    known: usize,
    /// A block has begun; when the present frame is over, it may have ended.
    in_block: bool,
    ends: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self { left: PREFACE_LENGTH, head: [0; FRAME_HEAD], known: 0, in_block: false, ends: false }
    }
}

impl Frames {
    /// Whether a block has ended in these bytes.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while !bytes.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                bytes = &bytes[passed..];
            } else {
                let taken = (FRAME_HEAD - self.known).min(bytes.len());
                self.head[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
                self.known += taken;
                bytes = &bytes[taken..];
                if self.known < FRAME_HEAD {
                    break;
                }
                self.known = 0;
                let [high, middle, low, kind, flags, ..] = self.head;
                self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                if matches!(kind, HEADERS | CONTINUATION) {
                    (self.in_block, self.ends) = (true, flags & END_HEADERS != 0);
                }
            }
            if self.left == 0 && self.ends {
                (self.in_block, self.ends) = (false, false);
                ended = true;
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, flags, 0, 0, 0, 1], &vec![HEADERS; length.into()][..]].concat()
    }

    #[test]
    fn a_block_is_open_from_its_first_frame_s_head_to_its_last_byte() {
        let data = 0;
        let pieces = [
            (vec![b'P'; PREFACE_LENGTH], false),
            (frame(4, 0, 6), false),
            (frame(HEADERS, END_HEADERS, 30), false),
            (frame(data, END_HEADERS, 9), false),
            (frame(HEADERS, 0, 3), true),
            (frame(CONTINUATION, 0, 0), true),
            (frame(CONTINUATION, END_HEADERS, 20), false),
            (frame(HEADERS, END_HEADERS, 0), false),
            (frame(HEADERS, 0, 0), true),
            (frame(CONTINUATION, END_HEADERS, 0), false),
        ];
        for at_once in [1, 2, 8, 9, 10, 1000] {
            let mut frames = Frames::default();
            for (bytes, open) in &pieces {
                for some in bytes.chunks(at_once) {
                    frames.read(some);
                }
                assert_eq!(frames.in_block, *open, "{bytes:?}");
            }
        }
        let mut frames = Frames::default();
        let all: Vec<u8> = pieces.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        frames.read(&all);
        assert!(!frames.in_block);
        frames.read(&frame(HEADERS, END_HEADERS, 5)[..13]);
        assert!(frames.in_block, "its last byte is to come");
    }
}
