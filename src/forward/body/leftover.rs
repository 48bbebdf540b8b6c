//! What is left of an upload whose answer came early.

use std::{future::poll_fn, pin::Pin, time::Duration};

use bytes::Bytes;
use http::Version;
use http_body::Body;
use tokio::{task::spawn_local, time::timeout};

use super::Upload;

/// How long a client may send nothing of what nobody wants, and how long it may send.
const QUIET: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(30);
/// So many bytes cost less than another connection.
const SHORT: u64 = 64 * 1024;

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// Reads what the client still sends of it, for a while, and keeps nothing. Whether its connection has to be
    /// closed, and the client told so: because it is to be anyway (`closes`), or the rest is more than is read.
    ///
    /// Over HTTP/2, to drop it resets the stream right behind an answer that came early, and there are clients that
    /// lose the answer then, although RFC 9113 §8.1 forbids that. Over HTTP/1.1, to drop it ends the connection right
    /// behind the answer, and a client that was not told sends its next request into nothing. So a short rest is read,
    /// and what is longer, or has no length, has to be told (`Connection: close`, RFC 9112 §9.6).
    pub(crate) fn swallow(self, closes: bool) -> bool
    where
        B: 'static,
    {
        let reads = {
            let mut source = self.0.borrow_mut();
            // No attempt reads any more.
            source.attempt += 1;
            if source.body.is_end_stream() {
                return closes;
            }
            let is_short = || source.body.size_hint().exact().is_some_and(|rest| rest <= SHORT);
            source.version == Version::HTTP_2 || !closes && is_short()
        };
        if reads {
            spawn_local(async move {
                let next = || poll_fn(|cx| Pin::new(&mut self.0.borrow_mut().body).poll_frame(cx));
                let all = async { while let Ok(Some(Ok(_))) = timeout(QUIET, next()).await {} };
                let _ = timeout(WHOLE, all).await;
            });
        }
        closes || !reads
    }
}
