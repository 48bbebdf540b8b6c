//! What comes of a request, taken in in bounded memory: of one caller, and of all together.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{Code, Error};

/// The longest message of most calls, in bytes. So much of each request counts for nothing: sandboxes whose
/// [`ROOM`] is full can be looked at and put right.
pub(crate) const SHORT: usize = 64 * 1024;
/// The longest message with input for a program, in bytes.
pub(crate) const INPUT: usize = 16 * 1024 * 1024;

/// KiB of what is longer than [`SHORT`], of all requests that this process reads or works on: one sandbox's.
static ROOM: Semaphore = Semaphore::const_new(32 * 1024);
/// How long a request waits for room.
const WAIT: Duration = Duration::from_secs(2);
/// How long a caller may say nothing in the middle of a message.
const SILENCE: Duration = Duration::from_mins(2);

/// A request's body, and what was read of it. It keeps its room until it is dropped.
pub(super) struct Reading {
    body: Body,
    pub(super) read: BytesMut,
    longest: usize,
    room: Option<SemaphorePermit<'static>>,
}

impl Reading {
    pub(super) fn new(body: Body, longest: usize) -> Self {
        Self { body, read: BytesMut::new(), longest, room: None }
    }

    pub(super) fn check_length(&self, length: usize) -> Result<(), Error> {
        if length <= self.longest {
            return Ok(());
        }
        let text = format!("the message is longer than {} bytes", self.longest);
        Err(Error::new(Code::ResourceExhausted, text))
    }

    /// All of it.
    pub(super) async fn whole(&mut self) -> Result<Bytes, Error> {
        while self.within_a_message().await? {
            self.check_length(self.read.len())?;
        }
        Ok(self.read.split().freeze())
    }

    /// Reads more; says whether there was more. Between two messages it may take as long as it likes.
    pub(super) async fn more(&mut self) -> Result<bool, Error> {
        if self.read.is_empty() { self.wait().await } else { self.within_a_message().await }
    }

    async fn within_a_message(&mut self) -> Result<bool, Error> {
        let late = |_| Error::new(Code::DeadlineExceeded, "the request stopped in the middle");
        timeout(SILENCE, self.wait()).await.map_err(late)?
    }

    async fn wait(&mut self) -> Result<bool, Error> {
        let frame = match self.body.frame().await {
            Some(frame) => frame.map_err(|error| Error::malformed(format!("the request broke off: {error}")))?,
            None => return Ok(false),
        };
        if let Ok(data) = frame.into_data() {
            self.take_room(self.read.len() + data.len()).await?;
            self.read.extend_from_slice(&data);
        }
        Ok(true)
    }

    async fn take_room(&mut self, bytes: usize) -> Result<(), Error> {
        let more = room_of(bytes).saturating_sub(self.room.as_ref().map_or(0, SemaphorePermit::num_permits));
        if more == 0 {
            return Ok(());
        }
        let wanted = ROOM.acquire_many(u32::try_from(more).unwrap_or(u32::MAX));
        let full = || Error::new(Code::ResourceExhausted, "too much input is on its way into this sandbox");
        let more = timeout(WAIT, wanted).await.ok().and_then(Result::ok).ok_or_else(full)?;
        match &mut self.room {
            Some(room) => room.merge(more),
            room => *room = Some(more),
        }
        Ok(())
    }

    /// What came before has been worked on.
    pub(super) fn give_back(&mut self) {
        if let Some(room) = &mut self.room {
            drop(room.split(room.num_permits().saturating_sub(room_of(self.read.len()))));
        }
    }
}

fn room_of(bytes: usize) -> usize {
    bytes.saturating_sub(SHORT).div_ceil(1024)
}
