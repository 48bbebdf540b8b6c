//! One HTTP/2 connection to a node or sandbox (RFC 9113), by prior knowledge, and the streams on it.

use std::{
    cell::Cell,
    future::{Future as _, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use http::{Request, Response, request::Parts};
use hyper::{
    body::Incoming,
    client::conn::{
        TrySendError,
        http2::{self, SendRequest},
    },
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::oneshot,
    task::spawn_local,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    first_frame::{Heard, listened},
    hub::Hub,
    tasks::{Lifeline, Outgoing, Tasks, UploadFault},
};
use crate::forward::{DialError, SendError, Upload, ways::Way};

/// Streams that this proxy opens on one connection, however many more its peer allows.
const MAX_STREAMS: u32 = 128;
/// What a peer may send on one stream unread, bytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for the whole connection. Answers whose clients are slow are not read: with less than all of them
/// together, they would block the connection's other answers.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// What was read of an upload and waits for the socket, bytes.
const MAX_UNSENT: usize = 256 * 1024;
/// Names and values of one head, each with 32 bytes of overhead (RFC 9113 §6.5.2).
const MAX_HEAD: u32 = 128 * 1024;
/// A peer that says nothing for so long is looked after, and is gone if it does not answer in the same time again.
const PING: Duration = Duration::from_secs(20);

/// How a connection's peer is known to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vigilance {
    /// It answers PING frames.
    Pings,
    /// It may be frozen for a while, and is not gone then: its kernel answers TCP's keep-alive. Also, it may be a
    /// gRPC server, and those end connections on which they are pinged often.
    Patience,
}

impl Vigilance {
    /// How long a peer may take for its SETTINGS, the first that it sends (RFC 9113 §3.4). One that speaks
    /// HTTP/1.1 refuses the preface at once, and is not waited for; a node that is mute for as long as a connection
    /// may take is as good as one that takes none.
    fn settings_within(self, connect_timeout: Duration) -> Duration {
        match self {
            Self::Pings => connect_timeout,
            // To be woken takes that long at worst.
            Self::Patience => Duration::from_mins(2),
        }
    }

    /// What a peer is that closed its connection before it greeted.
    fn lost(self, heard: Heard) -> ConnectError {
        match (heard, self) {
            (Heard::Http2, _) | (Heard::Nothing, Self::Pings) => {
                DialError::Unreachable(io::ErrorKind::ConnectionAborted.into()).into()
            }
            // Servers of HTTP/1.1 may refuse the preface without a word. In direct mode that is no node: somebody
            // listens, and the machine is well.
            (Heard::Else, _) | (Heard::Nothing, Self::Patience) => ConnectError::NotHttp2,
        }
    }
}

/// One connection. Dropping it closes the socket.
pub(super) struct Connection {
    sender: SendRequest<Outgoing>,
    tasks: Tasks,
    /// What its peer allows, as last seen.
    allowed: Rc<Cell<usize>>,
    streams: Cell<usize>,
    /// It has served before: its peer may have closed it meanwhile.
    served: Cell<bool>,
    retired: Cell<bool>,
    idle_since: Cell<Instant>,
    _driver: AbortOnDropHandle<()>,
    _transport: Option<AbortOnDropHandle<()>>,
}

/// Why there is no connection. Nothing was sent.
#[derive(Clone, Debug)]
pub(super) enum ConnectError {
    Dial(DialError),
    /// The peer answered in something else.
    NotHttp2,
}

impl From<DialError> for ConnectError {
    fn from(error: DialError) -> Self {
        Self::Dial(error)
    }
}

impl From<ConnectError> for SendError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Dial(error) => error.into(),
            ConnectError::NotHttp2 => Self::NotHttp2,
        }
    }
}

impl Connection {
    /// Ends once the peer has said how many streams it takes: whoever opened more would see them queue behind each
    /// other, where another connection would have room.
    pub(super) async fn open(
        socket: TcpStream,
        vigilance: Vigilance,
        connect_timeout: Duration,
        open: Way,
    ) -> Result<Rc<Self>, ConnectError> {
        let (socket, heard) = listened(socket);
        let tasks = Tasks::new(open);
        let mut builder = http2::Builder::new(tasks.clone());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD)
            .max_send_buf_size(MAX_UNSENT)
            // None before the peer's SETTINGS: so that they are noticed.
            .initial_max_send_streams(0);
        if vigilance == Vigilance::Pings {
            builder.keep_alive_interval(PING).keep_alive_timeout(PING);
        }
        let (sender, connection) =
            builder.handshake(TokioIo::new(socket)).await.map_err(|_| vigilance.lost(heard.get()))?;
        let transport = tasks.take_transport().map(AbortOnDropHandle::new);
        let allowed = Rc::new(Cell::new(0));
        let (told, settings) = oneshot::channel();
        let driver = spawn_local({
            let (allowed, tasks) = (allowed.clone(), tasks.clone());
            async move {
                let (mut connection, mut told) = (pin!(connection), Some(told));
                // Its error reaches the exchanges that are under way.
                let _ = poll_fn(|cx| {
                    let polled = connection.as_mut().poll(cx);
                    let now = if polled.is_ready() { 0 } else { connection.current_max_send_streams() };
                    allowed.set(now.min(MAX_STREAMS as usize));
                    if now > 0
                        && let Some(told) = told.take()
                    {
                        let _ = told.send(());
                    }
                    // Later changes are seen with the next request.
                    tasks.tell((polled.is_pending() && told.is_some()).then(|| cx.waker().clone()));
                    polled
                })
                .await;
            }
        });
        let driver = AbortOnDropHandle::new(driver);
        match timeout(vigilance.settings_within(connect_timeout), settings).await {
            Ok(Ok(())) => Ok(Rc::new(Self {
                sender,
                tasks,
                allowed,
                streams: Cell::new(0),
                served: Cell::new(false),
                retired: Cell::new(false),
                idle_since: Cell::new(Instant::now()),
                _driver: driver,
                _transport: transport,
            })),
            Err(_) if heard.get() != Heard::Else => Err(DialError::TimedOut.into()),
            _ => Err(vigilance.lost(heard.get())),
        }
    }

    /// Whether it will take streams again.
    pub(super) fn is_alive(&self) -> bool {
        !self.retired.get() && !self.sender.is_closed()
    }

    /// It takes no more streams.
    pub(super) fn retire(&self) {
        self.retired.set(true);
    }

    pub(super) fn has_room(&self) -> bool {
        self.streams.get() < self.allowed.get()
    }

    /// Since when nothing has been under way on it.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.streams.get() == 0).then(|| self.idle_since.get())
    }
}

/// A place for one exchange on a connection. Dropping it resets the stream, if that has not ended.
pub(crate) struct Stream {
    connection: Rc<Connection>,
    hub: Rc<Hub>,
    line: Rc<Lifeline>,
    /// Its connection had served before.
    pub(super) reused: bool,
}

impl Stream {
    pub(super) fn new(connection: Rc<Connection>, hub: Rc<Hub>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        let reused = connection.served.replace(true);
        Self { connection, hub, line: Rc::default(), reused }
    }

    /// Sends a request, whose head is one for HTTP/2.
    pub(super) async fn send(
        &self,
        head: Parts,
        upload: &Upload<Incoming>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Outgoing>>> {
        let body = self.connection.tasks.outgoing(upload.attempt(), self.line.clone());
        self.connection.sender.clone().try_send_request(Request::from_parts(head, body)).await
    }

    /// Why the upload broke off, if it did.
    pub(super) fn upload_fault(&self) -> Option<UploadFault> {
        self.line.fault()
    }

    /// Its connection takes no more of them.
    pub(super) fn retire(&self) {
        self.connection.retire();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.line.cut();
        let Connection { streams, idle_since, .. } = &*self.connection;
        streams.set(streams.get() - 1);
        idle_since.set(Instant::now());
        self.hub.freed();
    }
}
