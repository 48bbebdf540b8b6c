//! HTTP/1.1 with a client.

use std::{
    cell::Cell,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Version, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use hyper::{server::conn::http1, service::service_fn};
use tokio::time::{Instant, sleep};

use super::{Client, Serve, Tunnel as _};
use crate::{
    edge::{
        io::ClientIo,
        linger::linger,
        socket::Transport,
        watch::{Busy, Patience, Watch},
    },
    shutdown::{LAST_WORDS, Shutdown},
};

/// A head beyond this is 431; so are trailers. A target alone may have up to 64 KiB, and is 414 beyond.
const MAX_HEAD: usize = 128 * 1024;

/// Serves the connection to its end.
pub(super) async fn serve<S: Serve, T: Transport>(
    transport: T,
    client: Client,
    server: Rc<S>,
    patience: Patience,
    shutdown: &Shutdown,
) {
    let watch = Watch::new(patience, Instant::now());
    let io = ClientIo::new(transport, watch.clone());
    let peer = &server.meet(client.ip, client.secure);
    let switched = Cell::new(None);
    let service = service_fn(|request| {
        let (mut busy, old) = (Some(watch.request()), request.version() == Version::HTTP_10);
        let mut serving = server.serve(request, peer);
        let (watch, switched) = (&watch, &switched);
        poll_fn(move |cx| {
            Pin::new(&mut serving).poll(cx).map(|mut answer| {
                let busy = busy.take();
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Ok::<_, Infallible>(answer.map(|body| {
                        switched.set(S::tunnel(body));
                        Answer::nothing()
                    }));
                }
                if shutdown.is_draining() {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok(answer.map(|body| Answer::new(body, busy, old.then(|| watch.clone()))))
            })
        })
    });
    let mut connection = http1::Builder::new().max_header_size(MAX_HEAD).serve_connection(io, service);
    let mut closing = pin!(shutdown.closing().cancelled());
    let (mut listens, mut at_rest) = (false, true);
    // Nobody pays for the end before it begins.
    let mut end: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
    let ended = poll_fn(|cx| {
        // To poll a token takes its lock: once, to be woken by it.
        if end.is_none()
            && (shutdown.is_closing() || !std::mem::replace(&mut listens, true))
            && closing.as_mut().poll(cx).is_ready()
        {
            Pin::new(&mut connection).graceful_shutdown();
            end = Some(Box::pin(the_end(shutdown)));
        }
        match connection.poll_without_shutdown(cx) {
            // An answer that still streams breaks off.
            Poll::Pending if end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) => Poll::Ready(None),
            Poll::Pending => {
                at_rest = watch.is_at_rest();
                Poll::Pending
            }
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
        }
    });
    let Some(ended) = ended.await else { return };
    let sent_away = end.is_some();
    // An error is the client's own affair: it left, was too slow, or sent what is no HTTP.
    let refused = ended.as_ref().err().and_then(refusal);
    if let Err(error) = &ended {
        tracing::debug!(peer = %client.ip, %error, "connection ended");
    }
    if let Some(status) = refused {
        server.refused(status);
    }
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    let rest = async {
        match switched.take() {
            Some(tunnel) if ended.is_ok() => tunnel.run(io.into_inner(), read_buf).await,
            // A client that left has nothing unread, one that is sent away between two requests hardly.
            None if (ended.is_ok() && !(sent_away && at_rest)) || refused.is_some() => linger(io.into_inner()).await,
            _ => {}
        }
    };
    // Boxed: no connection carries its end all its life.
    let rest = Box::pin(async {
        tokio::select! {
            () = rest => {}
            () = the_end(shutdown) => {}
        }
    });
    rest.await;
}

/// Nothing goes on after this: the cut was a moment ago, and answers that tell of it have left.
async fn the_end(shutdown: &Shutdown) {
    shutdown.cut().cancelled().await;
    sleep(LAST_WORDS).await;
}

/// What hyper answers a request that it cannot read before it gives up the connection. It does not tell the
/// status, only the kinds of its parse errors: nothing is answered to an HTTP/2 preface, and of too large
/// a head and too long a URI only the words differ (a test holds them). Whether the client still read the
/// answer nobody knows.
fn refusal(error: &hyper::Error) -> Option<u16> {
    if !error.is_parse() || error.is_parse_version_h2() {
        None
    } else if !error.is_parse_too_large() {
        Some(400)
    } else if error.to_string().contains("URI too long") {
        Some(414)
    } else {
        Some(431)
    }
}

/// The body of an answer; the connection is busy until it ends.
struct Answer<B> {
    /// `None`: no HTTP follows the head.
    body: Option<B>,
    _busy: Option<Busy>,
    /// Of a body that ends with the connection: HTTP/1.0 has no chunks.
    open_ended: Option<Watch>,
}

impl<B: Body> Answer<B> {
    fn new(body: B, busy: Option<Busy>, old: Option<Watch>) -> Self {
        let open_ended = old.filter(|_| !body.is_end_stream() && body.size_hint().exact().is_none());
        if let Some(watch) = &open_ended {
            watch.set_open_ended(true);
        }
        Self { body: Some(body), _busy: busy, open_ended }
    }

    fn nothing() -> Self {
        Self { body: None, _busy: None, open_ended: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(&mut *body).poll_frame(cx);
        let over = matches!(frame, Poll::Ready(None)) || body.is_end_stream();
        if let Some(watch) = &self.open_ended
            && over
        {
            watch.set_open_ended(false);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
