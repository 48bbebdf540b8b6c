//! The body of an answer, counted: the request is over when it is dropped.

use std::{
    pin::Pin,
    task::{Context as Task, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    bridge::Bridge,
    connect_stream::{ConnectStream, Look},
    context::Context,
};
use crate::forward::{Download, DownloadError, Slot, Upload};

/// What is sent to the client.
pub(crate) struct Reply {
    from: From,
    context: Box<Context>,
    /// The sandbox's connection is taken until the body ends.
    slot: Option<Slot>,
}

enum From {
    Proxy(Bytes),
    Sandbox(Box<Download>, Upload<Incoming>),
    /// An open Connect stream of envd's.
    Stream(Box<ConnectStream>, Upload<Incoming>),
}

impl Reply {
    pub(crate) fn own(body: Bytes, mut context: Box<Context>) -> Self {
        if body.is_empty() {
            context.finished();
        }
        Self { from: From::Proxy(body), context, slot: None }
    }

    pub(crate) fn sandbox(
        body: Box<Download>,
        upload: Upload<Incoming>,
        mut context: Box<Context>,
        slot: Option<Slot>,
    ) -> Self {
        if body.is_end_stream() {
            context.finished();
        }
        Self { from: From::Sandbox(body, upload), context, slot }
    }

    /// Of an open Connect stream of envd's; `look` says whether its sandbox is there no more.
    pub(crate) fn stream(
        body: Box<Download>,
        look: Look,
        upload: Upload<Incoming>,
        context: Box<Context>,
        slot: Option<Slot>,
    ) -> Self {
        if body.is_end_stream() {
            // Nothing can break off any more.
            return Self::sandbox(body, upload, context, slot);
        }
        Self { from: From::Stream(Box::new(ConnectStream::new(body, look)), upload), context, slot }
    }

    /// Of an answer that is 101, or stands for it.
    pub(crate) fn switched(
        body: Box<Download>,
        upload: Upload<Incoming>,
        context: Box<Context>,
        slot: Option<Slot>,
    ) -> Self {
        Self { from: From::Sandbox(body, upload), context, slot }
    }

    /// What follows such an answer instead of a body.
    pub(crate) fn into_bridge(self) -> Option<Bridge> {
        let Self { from: From::Sandbox(body, _), context, slot } = self else { return None };
        body.into_tunnel().map(|tunnel| Bridge { tunnel, context, _slot: slot })
    }
}

impl From {
    /// In the middle of its upload.
    fn lost_its_client(&self) -> bool {
        match self {
            Self::Proxy(_) => false,
            Self::Sandbox(_, upload) | Self::Stream(_, upload) => upload.broken(),
        }
    }

    /// Whether it was given an end because its sandbox is gone.
    fn was_cut(&self) -> bool {
        matches!(self, Self::Stream(body, _) if body.was_cut())
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        let Self { from, context, .. } = &mut *self;
        let frame = match from {
            From::Proxy(body) => Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(std::mem::take(body))))),
            From::Sandbox(body, _) => Pin::new(&mut **body).poll_frame(task),
            From::Stream(body, upload) => {
                body.note_upload(upload.broken());
                Pin::new(&mut **body).poll_frame(task)
            }
        };
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                context.sent(frame.data_ref().map_or(0, Bytes::len));
                if self.from.was_cut() {
                    self.context.cut_by_sandbox();
                } else if self.is_end_stream() {
                    self.context.finished();
                }
            }
            // A client that leaves in the middle of its upload takes the exchange with it.
            Poll::Ready(Some(Err(_))) if from.lost_its_client() => {}
            Poll::Ready(Some(Err(_))) => context.cut_by_sandbox(),
            Poll::Ready(None) if from.was_cut() => {}
            Poll::Ready(None) => context.finished(),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            From::Proxy(body) => body.is_empty(),
            From::Sandbox(body, _) => body.is_end_stream(),
            From::Stream(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.from {
            From::Proxy(body) => SizeHint::with_exact(body.len() as u64),
            From::Sandbox(body, _) => body.size_hint(),
            From::Stream(..) => SizeHint::default(),
        }
    }
}
