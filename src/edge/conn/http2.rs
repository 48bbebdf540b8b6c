//! HTTP/2 with a client (RFC 9113): one task for the connection, one for each stream.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    rt::Executor,
    server::conn::http2,
    service::service_fn,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWrite as _,
    task::spawn_local,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Client, Serve, Tunnel};
use crate::{
    edge::{
        blocks::{self, OpenBlock},
        socket::Transport,
        streams::{Stream, Streams},
        watch::Patience,
    },
    forward::ClientSide,
    shutdown::{LAST_WORDS, Shutdown},
};

/// Streams that a client may have open at once; nginx's number.
const MAX_STREAMS: u32 = 128;
/// What a client may send on one stream unread, bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for the whole connection. Uploads that are held are not read: with less than all of them together,
/// they would block the connection's other uploads.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// Names and values of one head, each with 32 bytes of overhead (RFC 9113 §6.5.2).
const MAX_HEAD: u32 = 64 * 1024;
/// Streams that were reset before they could be looked at. An SDK cancels as many at once as it has open.
const MAX_RESET_UNSEEN: usize = 2 * MAX_STREAMS as usize;
/// What a client does not take of its answers, bytes of each stream.
const MAX_UNSENT: usize = 64 * 1024;
/// What a client that was told GOAWAY without a stream may take to end the connection.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves the connection to its end.
pub(super) async fn serve<S: Serve, T: Transport>(
    transport: T,
    client: Client,
    server: Rc<S>,
    patience: Patience,
    shutdown: &Shutdown,
) {
    let (streams, block) = (Streams::new(patience), OpenBlock::default());
    let peer = server.meet(client.ip, client.secure);
    let service = service_fn({
        let (streams, shutdown) = (streams.clone(), shutdown.clone());
        move |mut request: http::Request<_>| {
            let mut switches = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
            let mut stream = Some(streams.open());
            let (mut serving, shutdown) = (server.serve(request, &peer), shutdown.clone());
            poll_fn(move |cx| {
                let Poll::Ready(mut answer) = Pin::new(&mut serving).poll(cx) else {
                    if let Some(stream) = &stream {
                        stream.waits(cx.waker());
                    }
                    return Poll::Pending;
                };
                let mut stream = stream.take();
                if let Some(stream) = &mut stream {
                    stream.answered(shutdown.is_draining());
                }
                // Of HTTP/1.1 (RFC 9113 §8.2.2).
                answer.headers_mut().remove(CONNECTION);
                let granted = switches.take().filter(|_| answer.status().is_success());
                Poll::Ready(Ok::<_, Infallible>(answer.map(|body| match granted {
                    None => Answer::new(Some(body), stream),
                    Some(switches) => {
                        if let Some(tunnel) = S::tunnel(body) {
                            spawn_local(carry(switches, tunnel, stream, shutdown.track()));
                        }
                        Answer::new(None, None)
                    }
                })))
            })
        }
    });
    let transport = TokioIo::new(blocks::counted(transport, block.clone()));
    let mut connection = pin!(settings().serve_connection(transport, service));
    let mut closing = pin!(shutdown.closing().cancelled());
    let mut cut = pin!(shutdown.cut().cancelled());
    let mut idle = pin!(sleep_until(streams.due()));
    let (mut listens, mut leaving, mut end_is_told) = (false, false, false);
    let mut goodbye: Option<Pin<Box<Sleep>>> = None;
    // A head's time, while one comes: no stream of the connection gets a frame meanwhile.
    let mut head: Option<Pin<Box<Sleep>>> = None;
    let ended = poll_fn(|cx| {
        // To poll a token takes its lock: once, to be woken by it.
        let first = !std::mem::replace(&mut listens, true);
        let closes = (first || shutdown.is_closing()) && closing.as_mut().poll(cx).is_ready();
        if !end_is_told && (first || shutdown.is_cut()) && cut.as_mut().poll(cx).is_ready() {
            end_is_told = true;
            streams.wake();
            goodbye = Some(Box::pin(sleep(LAST_WORDS)));
        }
        // Likewise a timer: with streams open it rings too early at worst.
        let mut idle_for_long = false;
        while (first || streams.is_idle() || idle.is_elapsed()) && idle.as_mut().poll(cx).is_ready() {
            if Instant::now() >= streams.due() {
                idle_for_long = true;
                break;
            }
            idle.as_mut().reset(streams.due());
        }
        // Told between two requests, where there is such a moment: some clients give up what is under way at the first
        // GOAWAY, although it is none of what it refuses.
        if !leaving && (closes || idle_for_long || (streams.leaves() && streams.is_idle())) {
            leaving = true;
            connection.as_mut().graceful_shutdown();
        }
        // Without a stream there is nothing to wait for, but that the client agrees; a request that meets the GOAWAY
        // on its way is served.
        if !end_is_told {
            match (leaving && streams.is_idle(), &goodbye) {
                (true, None) => goodbye = Some(Box::pin(sleep(GOODBYE))),
                (false, Some(_)) => goodbye = None,
                _ => {}
            }
        }
        match connection.as_mut().poll(cx) {
            Poll::Pending if streams.flooded() => Poll::Ready(Ok(())),
            Poll::Pending if goodbye.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) => {
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                let Some(since) = block.since() else {
                    head = None;
                    return Poll::Pending;
                };
                let due = since + patience.head;
                let timer = head.get_or_insert_with(|| Box::pin(sleep_until(due)));
                if timer.deadline() != due {
                    timer.as_mut().reset(due);
                }
                timer.as_mut().poll(cx).map(Ok)
            }
            ended @ Poll::Ready(_) => ended,
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(peer = %client.ip, %error, "connection ended");
    }
}

fn settings() -> http2::Builder<Local> {
    let mut settings = http2::Builder::new(Local);
    settings
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD)
        .max_pending_accept_reset_streams(MAX_RESET_UNSEEN)
        .max_send_buf_size(MAX_UNSENT)
        .enable_connect_protocol();
    settings
}

/// Lets a tunnel through a stream. The drain waits for it; its connection's end is its own.
async fn carry<T: Tunnel>(switches: OnUpgrade, tunnel: T, _stream: Option<Stream>, _tracked: TaskTrackerToken) {
    // An error: the client left before it heard that the protocol is another now.
    if let Ok(stream) = switches.await {
        tunnel.run(TokioIo::new(stream), Bytes::new()).await;
    }
}

impl ClientSide for TokioIo<Upgraded> {
    /// Its end is read also where it reset the stream; then nothing can be written any more.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        matches!(Pin::new(self).poll_flush(cx), Poll::Ready(Err(_)))
    }
}

/// Runs the streams' tasks beside their connection's.
#[derive(Clone)]
struct Local;

impl<F: Future<Output = ()> + 'static> Executor<F> for Local {
    fn execute(&self, stream: F) {
        spawn_local(stream);
    }
}

/// The body of an answer; its stream is open until it ends.
struct Answer<B> {
    /// `None`: no HTTP follows the head.
    body: Option<B>,
    /// What was read of it at once, and is too much for hyper to have at once: it takes whole frames.
    rest: Bytes,
    _stream: Option<Stream>,
}

impl<B> Answer<B> {
    fn new(body: Option<B>, stream: Option<Stream>) -> Self {
        Self { body, rest: Bytes::new(), _stream: stream }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body: Some(body), rest, .. } = &mut *self else { return Poll::Ready(None) };
        if rest.is_empty() {
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| data.len() > MAX_UNSENT) => {
                    *rest = frame.into_data().unwrap_or_default();
                }
                frame => return frame,
            }
        }
        let most = rest.len().min(MAX_UNSENT);
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(most)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // Asked before anything is read.
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
