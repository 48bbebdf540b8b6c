//! Frames of streams: a byte of flags, the length in four bytes, most significant first, and JSON
//! (connectrpc.com/docs/protocol, "Streaming RPCs").

use std::marker::PhantomData;

use axum::body::Body;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use super::{Code, Error, reading::Reading};

const HEAD: usize = 5;
const DATA: u8 = 0;
const COMPRESSED: u8 = 1;
const END: u8 = 2;

#[derive(Serialize)]
struct End<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

fn frame(flags: u8, message: &impl Serialize) -> Result<Bytes, Error> {
    let mut frame = BytesMut::zeroed(HEAD).writer();
    let failed = |error: &dyn std::fmt::Display| Error::new(Code::Internal, error.to_string());
    serde_json::to_writer(&mut frame, message).map_err(|error| failed(&error))?;
    let mut frame = frame.into_inner();
    let length = u32::try_from(frame.len() - HEAD).map_err(|error| failed(&error))?;
    let mut head = &mut frame[..HEAD];
    head.put_u8(flags);
    head.put_u32(length);
    Ok(frame.freeze())
}

pub(super) fn message(message: &impl Serialize) -> Result<Bytes, Error> {
    frame(DATA, message)
}

/// The last frame of every stream.
pub(super) fn end(error: Option<&Error>) -> Bytes {
    // Of strings alone: it cannot fail.
    frame(END, &End { error }).unwrap_or_default()
}

pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map_err(|error| Error::malformed(format!("unmarshal message: {error}")))
}

/// The messages of a request, one after the other; at most one is kept, and what came with it.
pub(crate) struct Messages<T> {
    reading: Reading,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Messages<T> {
    pub(super) fn new(body: Body, longest: usize) -> Self {
        Self { reading: Reading::new(body, longest), kind: PhantomData }
    }

    /// `None` at the end of the request. The one before has been worked on.
    pub(crate) async fn next(&mut self) -> Result<Option<T>, Error> {
        self.reading.give_back();
        self.next_bytes().await?.map(|json| parse(&json)).transpose()
    }

    pub(super) async fn next_bytes(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(message) = take(&mut self.reading)? {
                return Ok(Some(message));
            }
            if !self.reading.more().await? {
                let is_whole = self.reading.read.is_empty();
                let broken = || Error::malformed("the request ends within a frame");
                return if is_whole { Ok(None) } else { Err(broken()) };
            }
        }
    }
}

/// A whole frame's message, if one is there.
fn take(reading: &mut Reading) -> Result<Option<Bytes>, Error> {
    let Some(mut head) = reading.read.get(..HEAD) else {
        return Ok(None);
    };
    let (flags, length) = (head.get_u8(), head.get_u32());
    match flags {
        DATA => {}
        COMPRESSED => {
            return Err(Error::new(Code::Internal, "protocol error: a compressed message without compression"));
        }
        _ => return Err(Error::malformed(format!("protocol error: invalid envelope flags {flags:08b}"))),
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    reading.check_length(length)?;
    if reading.read.len() - HEAD < length {
        return Ok(None);
    }
    reading.read.advance(HEAD);
    Ok(Some(reading.read.split_to(length).freeze()))
}
