//! One client connection, HTTP/1.1: requests to the handler, answers back, until either side has enough.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    net::IpAddr,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{
    io::ClientIo,
    watch::{Busy, Patience, Watch},
};
use crate::shutdown::{LAST_WORDS, Shutdown};

/// Answers requests.
pub(crate) trait Serve: 'static {
    /// What the server knows of a connection's other end.
    type Peer;
    type Body: Body<Data = Bytes, Error = hyper::Error> + Unpin + 'static;
    /// Once for each connection, before its first request.
    fn meet(&self, ip: IpAddr) -> Self::Peer;
    fn serve(&self, request: Request<Incoming>, peer: &Self::Peer) -> impl Future<Output = Response<Self::Body>>;
    /// A request was so malformed that it never came this far: hyper answered it with this status, or would
    /// have if the client had stayed.
    fn refused(&self, status: u16);
}

/// Serves the connection to its end.
pub(crate) async fn serve<S: Serve>(
    socket: TcpStream,
    ip: IpAddr,
    server: &S,
    patience: Patience,
    shutdown: &Shutdown,
) {
    let watch = Watch::new(patience, Instant::now());
    let io = ClientIo::new(socket, watch.clone());
    let peer = &server.meet(ip);
    let service = service_fn(|request| {
        let busy = watch.request();
        let old = request.version() == Version::HTTP_10;
        let watch = watch.clone();
        // Boxed: hyper keeps room for it, and an idle connection needs none.
        Box::pin(async move {
            let mut answer = server.serve(request, peer).await;
            if shutdown.is_draining() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer.map(|body| Answer::new(body, busy, old.then_some(watch))))
        })
    });
    let mut connection = pin!(http1::Builder::new().serve_connection(io, service));
    let mut closing = pin!(shutdown.closing().cancelled());
    let mut listens = false;
    // Nobody pays for the end before it begins.
    let mut end: Option<Pin<Box<dyn Future<Output = ()>>>> = None;
    // An error is the client's own affair: it left, was too slow, or sent what is no HTTP.
    let ended = poll_fn(|cx| {
        // To poll a token takes its lock: once, to be woken by it.
        if end.is_none()
            && (shutdown.is_closing() || !std::mem::replace(&mut listens, true))
            && closing.as_mut().poll(cx).is_ready()
        {
            connection.as_mut().graceful_shutdown();
            end = Some(Box::pin(the_end(shutdown.clone())));
        }
        match connection.as_mut().poll(cx) {
            // An answer that still streams breaks off.
            Poll::Pending if end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) => Poll::Ready(Ok(())),
            polled => polled,
        }
    });
    if let Err(error) = ended.await {
        if let Some(status) = refusal(&error) {
            server.refused(status);
        }
        tracing::debug!(peer = %ip, %error, "connection ended");
    }
}

/// Nothing goes on after this: the cut was a moment ago, and answers that tell of it have left.
async fn the_end(shutdown: Shutdown) {
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
    body: B,
    _busy: Busy,
    /// Of a body that ends with the connection: HTTP/1.0 has no chunks.
    open_ended: Option<Watch>,
}

impl<B: Body> Answer<B> {
    fn new(body: B, busy: Busy, old: Option<Watch>) -> Self {
        let open_ended = old.filter(|_| !body.is_end_stream() && body.size_hint().exact().is_none());
        if let Some(watch) = &open_ended {
            watch.set_open_ended(true);
        }
        Self { body, _busy: busy, open_ended }
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(watch) = &self.open_ended
            && (matches!(frame, Poll::Ready(None)) || self.body.is_end_stream())
        {
            watch.set_open_ended(false);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
