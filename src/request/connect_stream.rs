//! An open Connect stream of envd, and how it ends when its sandbox is paused.
//!
//! E2B's SDKs take a stream that breaks off for a reason to ask `/health`, which wakes the sandbox that was just
//! paused; a stream that ends in an error does not make them ask. So a cut is looked into, and where the sandbox is
//! gone the stream gets its last message. That stands between messages: what came of an unfinished one is kept back,
//! of which a client can make nothing anyway, unless it is a large one.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body::{Body, Frame};

use super::respond::end_of_stream;
use crate::forward::{Download, DownloadError, headers::Rpc};

#[cfg(test)]
mod tests;

/// Finds out whether the sandbox is there no more.
pub(crate) type Look = Box<dyn FnOnce() -> Looking>;
type Looking = Pin<Box<dyn Future<Output = bool>>>;

/// The body of such an answer.
pub(crate) struct ConnectStream {
    download: Box<Download>,
    messages: Messages,
    /// Until it is needed.
    look: Option<Look>,
    /// Its client has left in the middle of its upload: that is why it breaks off.
    client_left: bool,
    state: State,
}

enum State {
    Open,
    /// It broke off; the sandbox is looked for.
    Cut(DownloadError, Looking),
    /// It breaks off for the client, too, once it has what was kept back.
    Broken(DownloadError),
    /// What was kept back has been handed over, and is yet to be sent: an error right behind it would overtake it.
    Rested(DownloadError),
    /// What was kept back has been handed over, and these follow.
    Trailing(Frame<Bytes>),
    /// It has its end. Whether that is ours.
    Over {
        ours: bool,
    },
}

/// Where one message ends and the next begins.
#[derive(Default)]
struct Messages {
    /// The beginning of one.
    kept: BytesMut,
    /// Bytes of a large one that are still to come, and pass as they do.
    passing: usize,
    /// The stream's own last message has passed.
    ended: bool,
}

/// Flags and length.
const HEAD: usize = 5;
/// Larger messages are not kept back.
const KEEP: usize = 64 * 1024;

impl ConnectStream {
    /// Whether an answer of envd's is one: its end is where it says so, and no number of bytes was promised.
    pub(crate) fn is_one(headers: &HeaderMap) -> bool {
        let named = headers.get(CONTENT_TYPE).and_then(|value| Rpc::named_by(value.as_bytes()));
        named == Some(Rpc::ConnectStream) && !headers.contains_key(CONTENT_LENGTH)
    }

    pub(crate) fn new(download: Box<Download>, look: Look) -> Self {
        Self { download, messages: Messages::default(), look: Some(look), client_left: false, state: State::Open }
    }

    /// To be called before it is polled.
    pub(crate) fn note_upload(&mut self, broken: bool) {
        self.client_left |= broken;
    }

    /// Whether its end is ours, because its sandbox is gone.
    pub(crate) fn was_cut(&self) -> bool {
        matches!(self.state, State::Over { ours: true })
    }

    /// Of an open stream: what there is for the client now, `None` if nothing yet.
    fn open(&mut self, came: Option<Result<Frame<Bytes>, DownloadError>>) -> Option<Frame<Bytes>> {
        match came {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(self.messages.take(data)).filter(|data| !data.is_empty()).map(Frame::data),
                Err(trailers) => match self.rest() {
                    Some(rest) => {
                        self.state = State::Trailing(trailers);
                        Some(rest)
                    }
                    None => Some(trailers),
                },
            },
            Some(Err(error)) => {
                let look = self.look.take().filter(|_| self.messages.are_open() && !self.client_left);
                self.state = match look {
                    Some(look) => State::Cut(error, look()),
                    None => State::Broken(error),
                };
                None
            }
            None => {
                self.state = State::Over { ours: false };
                self.rest()
            }
        }
    }

    /// What was kept back of a message that will never be whole.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let rest = self.messages.kept.split().freeze();
        (!rest.is_empty()).then(|| Frame::data(rest))
    }
}

impl Body for ConnectStream {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let this = &mut *self;
        loop {
            let frame = match std::mem::replace(&mut this.state, State::Open) {
                State::Open => {
                    let came = ready!(Pin::new(&mut *this.download).poll_frame(cx));
                    this.open(came)
                }
                State::Cut(error, mut looking) => match looking.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.state = State::Cut(error, looking);
                        return Poll::Pending;
                    }
                    Poll::Ready(true) => {
                        this.state = State::Over { ours: true };
                        Some(Frame::data(end_of_stream()))
                    }
                    Poll::Ready(false) => {
                        this.state = State::Broken(error);
                        None
                    }
                },
                State::Trailing(trailers) => Some(trailers),
                State::Broken(error) => {
                    let Some(rest) = this.rest() else {
                        this.state = State::Over { ours: false };
                        return Poll::Ready(Some(Err(error)));
                    };
                    this.state = State::Rested(error);
                    Some(rest)
                }
                State::Rested(error) => {
                    this.state = State::Broken(error);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                State::Over { ours } => {
                    this.state = State::Over { ours };
                    return Poll::Ready(None);
                }
            };
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.state {
            State::Open => self.messages.kept.is_empty() && self.download.is_end_stream(),
            State::Over { .. } => true,
            State::Cut(..) | State::Trailing(_) | State::Broken(_) | State::Rested(_) => false,
        }
    }
}

impl Messages {
    /// Takes what came; gives back what may pass.
    fn take(&mut self, data: Bytes) -> Bytes {
        let mut data = if self.kept.is_empty() {
            data
        } else {
            self.kept.extend_from_slice(&data);
            if length(&self.kept).is_none_or(|length| self.kept.len() < length && length <= KEEP) {
                return Bytes::new();
            }
            self.kept.split().freeze()
        };
        let mut end = self.passing.min(data.len());
        self.passing -= end;
        while let Some(length) = length(&data[end..]) {
            let left = data.len() - end;
            if left < length && length <= KEEP {
                break;
            }
            // The end of a stream (the Connect protocol, "Error End-Stream").
            self.ended |= data[end] & 2 != 0;
            self.passing = length.saturating_sub(left);
            end += length.min(left);
        }
        self.kept = BytesMut::from(&data[end..]);
        data.truncate(end);
        data
    }

    /// Whether another message could follow here.
    fn are_open(&self) -> bool {
        self.passing == 0 && !self.ended
    }
}

/// How long the message is that begins here, with its head, once that is whole.
fn length(data: &[u8]) -> Option<usize> {
    let head = data.get(1..HEAD)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(head)).ok()?.checked_add(HEAD)
}
