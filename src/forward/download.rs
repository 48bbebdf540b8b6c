//! An answer's body on its way down, and its connection on the way back into the pool.

use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{Forwarder, Tunnel, headers::clean_trailers, http2::Stream, pool::Connection};

/// The body of a sandbox's answer. Dropped before its end, it takes the upstream connection with it.
pub(crate) struct Download {
    /// Bytes read ahead, passed on first.
    ahead: BytesMut,
    /// What ended the bytes read ahead, passed on behind them.
    trailers: Option<HeaderMap>,
    /// How reading ahead ended, where it failed.
    broken: Option<hyper::Error>,
    /// Where the rest comes from; `None` after its end.
    source: Option<Source>,
    forwarder: Rc<Forwarder>,
    poolable: bool,
    /// What there is instead of a body, after 101.
    tunnel: Option<Box<Tunnel>>,
}

struct Source {
    body: Incoming,
    via: Via,
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match &self.via {
            Via::Http1(connection) => connection.driver.taking(&mut self.body, |body| body.poll_frame(cx)),
            Via::Http2 { .. } => Pin::new(&mut self.body).poll_frame(cx),
        }
    }
}

/// What the answer comes by.
pub(super) enum Via {
    Http1(Box<Connection>),
    /// Its place is free when it is dropped.
    Http2 {
        _stream: Box<Stream>,
    },
}

impl From<Box<Connection>> for Via {
    fn from(connection: Box<Connection>) -> Self {
        Self::Http1(connection)
    }
}

impl From<Box<Stream>> for Via {
    fn from(stream: Box<Stream>) -> Self {
        Self::Http2 { _stream: stream }
    }
}

/// Why an answer has no end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownloadError {
    /// Not its source: the reason of a stream's reset would be told to the client as if it were of its stream.
    #[error("the answer broke off: {0}")]
    Broken(hyper::Error),
    /// `NO_ERROR`, which to hyper is an end: but the body was not at its own (RFC 9113 §8.1).
    #[error("the answer was given up before its end")]
    GivenUp,
}

impl Forwarder {
    /// Ties the answer's body to its connection. Boxed here: on its way to the client it is moved often.
    pub(super) fn download(
        self: &Rc<Self>,
        answer: Response<Incoming>,
        via: Via,
        poolable: bool,
    ) -> Response<Box<Download>> {
        // hyper would speak HTTP/1.0 on that connection from now on: bodies of unknown length were lost.
        let poolable = poolable && answer.version() == Version::HTTP_11;
        answer.map(|body| {
            let source = Some(Source { body, via });
            let (ahead, trailers, broken, forwarder) = (BytesMut::new(), None, None, self.clone());
            let mut download =
                Box::new(Download { ahead, trailers, broken, source, forwarder, poolable, tunnel: None });
            download.release_if_over();
            download
        })
    }
}

impl Download {
    pub(super) fn switched(forwarder: Rc<Forwarder>, tunnel: Tunnel) -> Self {
        let (ahead, tunnel) = (BytesMut::new(), Some(Box::new(tunnel)));
        Self { ahead, trailers: None, broken: None, source: None, forwarder, poolable: false, tunnel }
    }

    /// What there is instead of a body, after 101.
    pub(crate) fn into_tunnel(self) -> Option<Box<Tunnel>> {
        self.tunnel
    }

    /// Reads until `limit` bytes are there or the body ends. What was read stays in the body; the future
    /// may be dropped at any time.
    pub(crate) async fn peek(&mut self, limit: usize) -> &[u8] {
        while let Some(source) = &mut self.source
            && self.ahead.len() < limit
            && self.broken.is_none()
        {
            match poll_fn(|cx| source.poll_frame(cx)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.ahead.extend_from_slice(&data),
                    // Nothing follows them, and hyper is not asked.
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.release();
                    }
                },
                Some(Err(error)) => self.broken = Some(error),
                None => break,
            }
        }
        self.release_if_over();
        &self.ahead
    }

    fn release_if_over(&mut self) {
        if self.source.as_ref().is_some_and(|source| source.body.is_end_stream()) {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some(Source { body, via: Via::Http1(connection) }) = self.source.take()
            && self.poolable
        {
            connection.driver.spent(body);
            self.forwarder.pool.put(connection);
        }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = DownloadError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, DownloadError>>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(self.ahead.split().freeze()))));
        }
        if let Some(error) = self.broken.take() {
            self.source = None;
            return Poll::Ready(Some(Err(DownloadError::Broken(error))));
        }
        if let Some(mut trailers) = self.trailers.take() {
            clean_trailers(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let mut frame = source.poll_frame(cx);
        match &mut frame {
            Poll::Ready(Some(Ok(frame))) => match frame.trailers_mut() {
                // Nothing follows them, and hyper does not ask.
                Some(trailers) => {
                    clean_trailers(trailers);
                    self.release();
                }
                // A body of known length ends with its last byte.
                None => self.release_if_over(),
            },
            Poll::Ready(Some(Err(_))) => self.source = None,
            Poll::Ready(None) if matches!(source.via, Via::Http2 { .. }) && !source.body.is_end_stream() => {
                self.source = None;
                return Poll::Ready(Some(Err(DownloadError::GivenUp)));
            }
            Poll::Ready(None) => self.release(),
            Poll::Pending => {}
        }
        frame.map_err(DownloadError::Broken)
    }

    fn is_end_stream(&self) -> bool {
        let over = self.source.as_ref().is_none_or(|source| source.body.is_end_stream());
        over && self.ahead.is_empty() && self.trailers.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.source.as_ref().map_or(SizeHint::with_exact(0), |source| source.body.size_hint());
        match hint.exact() {
            Some(rest) => SizeHint::with_exact(rest + self.ahead.len() as u64),
            None => hint,
        }
    }
}
