//! An answer's body on its way down, and its connection on the way back into the pool.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{Forwarder, headers, pool::Connection};

/// The body of a sandbox's answer. Dropped before its end, it takes the upstream connection with it.
pub(crate) struct Download {
    /// Bytes read ahead, passed on first.
    ahead: BytesMut,
    /// How reading ahead ended, where it failed.
    broken: Option<hyper::Error>,
    body: Incoming,
    /// Trailers were read: nothing follows them, and hyper does not ask.
    trailed: bool,
    connection: Option<Connection>,
    forwarder: Rc<Forwarder>,
    poolable: bool,
}

impl Forwarder {
    /// Ties the answer's body to its connection.
    pub(super) fn download(
        self: &Rc<Self>,
        answer: Response<Incoming>,
        connection: Connection,
        poolable: bool,
    ) -> Response<Download> {
        // hyper would speak HTTP/1.0 on that connection from now on: bodies of unknown length were lost.
        let poolable = poolable && answer.version() == Version::HTTP_11;
        answer.map(|body| {
            let mut download = Download {
                ahead: BytesMut::new(),
                broken: None,
                body,
                trailed: false,
                connection: Some(connection),
                forwarder: self.clone(),
                poolable,
            };
            download.release_if_over();
            download
        })
    }
}

impl Download {
    /// Reads until `limit` bytes are there or the body ends. What was read stays in the body; the future
    /// may be dropped at any time.
    pub(crate) async fn peek(&mut self, limit: usize) -> &[u8] {
        while self.ahead.len() < limit && self.broken.is_none() {
            match self.body.frame().await {
                Some(Ok(frame)) => self.ahead.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Some(Err(error)) => self.broken = Some(error),
                None => break,
            }
        }
        self.release_if_over();
        &self.ahead
    }

    fn release_if_over(&mut self) {
        if self.trailed || self.body.is_end_stream() {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(connection) = self.connection.take()
            && self.poolable
        {
            self.forwarder.pool.put(connection);
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.ahead.split().freeze()))));
        }
        if let Some(error) = self.broken.take() {
            drop(self.connection.take());
            return Poll::Ready(Some(Err(error)));
        }
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            headers::inbound_trailers(trailers);
            self.trailed = true;
        }
        match &frame {
            Poll::Ready(None) => self.release(),
            // A body of known length ends with its last byte, one with trailers with them; nobody asks for more.
            Poll::Ready(Some(Ok(_))) => self.release_if_over(),
            Poll::Ready(Some(Err(_))) => drop(self.connection.take()),
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.broken.is_none() && (self.trailed || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        match hint.exact() {
            Some(rest) => SizeHint::with_exact(rest + self.ahead.len() as u64),
            None => hint,
        }
    }
}
