//! What is left of an upload whose answer came early.

use std::{future::poll_fn, pin::Pin, time::Duration};

use bytes::Bytes;
use http::Version;
use http_body::Body;
use tokio::{task::spawn_local, time::timeout};

use super::Upload;

/// How long a client may send nothing of what nobody wants, and how long it may send: as with HTTP/1.1.
const QUIET: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(30);

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// Reads what the client still sends of it over HTTP/2, for a while, and keeps nothing. To drop it resets the
    /// stream right behind an answer that came early, and there are clients that lose the answer then, although RFC
    /// 9113 §8.1 forbids that. (Over HTTP/1.1 the connection's end is waited for.)
    pub(crate) fn swallow(self)
    where
        B: 'static,
    {
        {
            let mut source = self.0.borrow_mut();
            // No attempt reads any more.
            source.attempt += 1;
            if source.version != Version::HTTP_2 || source.body.is_end_stream() {
                return;
            }
        }
        spawn_local(async move {
            let next = || poll_fn(|cx| Pin::new(&mut self.0.borrow_mut().body).poll_frame(cx));
            let all = async { while let Ok(Some(Ok(_))) = timeout(QUIET, next()).await {} };
            let _ = timeout(WHOLE, all).await;
        });
    }
}
