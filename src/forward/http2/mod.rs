//! To sandboxes that speak HTTP/2: one exchange on one stream, and when it may be sent again.

use std::rc::Rc;

use http::{Response, request::Parts};
use hyper::body::Incoming;

mod connection;
mod hub;
mod tasks;

use self::{
    connection::{Connection, NotHttp2},
    tasks::UploadFault,
};
pub(crate) use self::{
    connection::{Stream, Vigilance},
    hub::Hubs,
};
use super::{Destination, DialError, Download, Forwarder, SendError, Upload, died, headers, is_idempotent};
use crate::telemetry::Gauged;

/// A peer that refuses every stream is believed then.
const MAX_SENDINGS: usize = 4;

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
        let head = headers::http2(head).ok_or(SendError::NotHttp2)?;
        let mut sendings = 1;
        loop {
            let hub = self.hubs.hub(&to.address, to.shared);
            let stream = hub.stream(|| self.clone().connect_http2(to)).await?;
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
    ) -> impl Future<Output = Result<Rc<Connection>, Option<DialError>>> + 'static {
        let (address, sandbox, ladder) = (to.address.clone(), to.sandbox.clone(), to.ladder);
        async move {
            let dialled = self.dialer.dial(&address, &sandbox, ladder).await;
            self.metrics.dial(dialled.as_ref().map_or_else(DialError::as_str, |_| "ok"));
            let open = Gauged::new(&self.metrics.upstream_connections);
            Connection::open(dialled?, self.vigilance, open).await.map_err(|NotHttp2| None)
        }
    }
}

/// Whether the peer says that it has not processed the request.
fn was_refused(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else { return false };
    // Streams that a GOAWAY includes end otherwise.
    error.is_remote()
        && (error.is_go_away() || (error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM)))
}
