//! To sandboxes that speak HTTP/2: one exchange on one stream, and when it may be sent again.

use std::{io, rc::Rc};

use http::{Response, request::Parts};
use hyper::body::Incoming;
use tokio::sync::watch;

mod connection;
mod first_frame;
mod hub;
mod tasks;

use self::{
    connection::{ConnectError, Connection},
    hub::Stage,
    tasks::UploadFault,
};
pub(crate) use self::{
    connection::{Stream, Vigilance},
    hub::Hubs,
};
use super::{Destination, DialError, Download, Forwarder, SendError, Upload, died, headers, is_idempotent};

/// A peer that refuses every stream is believed then.
const MAX_SENDINGS: usize = 4;
/// So is one whose connections end as soon as they have begun.
const MAX_IN_VAIN: usize = 3;

impl Forwarder {
    /// As [`Forwarder::send`], over HTTP/2 by prior knowledge.
    ///
    /// Sent again, on another connection, is also what the peer says it has not processed: by `REFUSED_STREAM`
    /// (RFC 9113 §8.7), or by the last stream of its GOAWAY (§6.8).
    pub(super) async fn send_http2(
        self: &Rc<Self>,
        head: &Parts,
        upload: &Upload<Incoming>,
        to: &Destination,
    ) -> Result<Response<Box<Download>>, SendError> {
        let head = headers::http2(head).ok_or(SendError::BadHost)?;
        let (mut sendings, mut in_vain) = (1, 0);
        loop {
            let hub = self.hubs.hub(to.party.as_deref().unwrap_or(&to.address), to.shared);
            let connect = |stage| self.clone().connect_http2(to, stage);
            let stream = hub.stream(&mut in_vain, || upload.awaited(), connect).await?;
            let mut error = match stream.send(head.clone(), upload).await {
                Ok(answer) => return Ok(self.download(answer, stream.into(), true)),
                Err(error) => error,
            };
            let untouched = error.take_message().is_some();
            let error = error.into_error();
            match stream.upload_fault() {
                Some(UploadFault::Malformed) => return Err(SendError::BadBody),
                Some(UploadFault::ClientLeft) => return Err(SendError::ClientLeft),
                None => {}
            }
            let refused = was_refused(&error);
            let unseen = untouched || is_go_away(&error);
            in_vain += usize::from(unseen && !stream.reused);
            if unseen && (in_vain >= MAX_IN_VAIN || sendings == MAX_SENDINGS) {
                return Err(unreachable().into());
            }
            let again = untouched || refused || (stream.reused && is_idempotent(&head.method) && died(&error));
            if !again || !upload.repeatable() || sendings == MAX_SENDINGS {
                return Err(SendError::Broken(error));
            }
            self.metrics.retry(if refused { "refused_stream" } else { "stale_connection" });
            stream.retire();
            sendings += 1;
        }
    }

    fn connect_http2(
        self: Rc<Self>,
        to: &Destination,
        stage: watch::Sender<Stage>,
    ) -> impl Future<Output = Result<Rc<Connection>, ConnectError>> + 'static {
        let (address, sandbox, ladder) = (to.address.clone(), to.sandbox.clone(), to.ladder);
        async move {
            let dialled = self.dialer.dial(&address, &sandbox, ladder).await;
            self.metrics.dial(dialled.as_ref().map_or_else(DialError::as_str, |_| "ok"));
            let (socket, open) = dialled?;
            stage.send_replace(Stage::Connected);
            Connection::open(socket, self.vigilance, self.dialer.connect_timeout(), open).await
        }
    }
}

/// Its connections end before they are of use.
fn unreachable() -> DialError {
    DialError::Unreachable(io::ErrorKind::ConnectionAborted.into())
}

/// Whether the peer says that it has not processed the request.
fn was_refused(error: &hyper::Error) -> bool {
    let refused = |error: &h2::Error| error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    is_go_away(error) || said(error).is_some_and(refused)
}

/// Whether it says so by leaving. Streams that a GOAWAY includes end otherwise.
fn is_go_away(error: &hyper::Error) -> bool {
    said(error).is_some_and(h2::Error::is_go_away)
}

/// What the peer itself gave for a reason.
fn said(error: &hyper::Error) -> Option<&h2::Error> {
    use std::error::Error as _;
    error.source()?.downcast_ref::<h2::Error>().filter(|error| error.is_remote())
}
