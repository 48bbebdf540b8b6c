//! Floor 2: to the sandbox. Sends one request once, over a connection of this worker's, and hands the
//! answer back as a stream. Who is meant and whether it sleeps is not known here.

use std::{net::SocketAddr, pin::Pin, rc::Rc, sync::Arc};

use http::{HeaderValue, Method, Request, Response, StatusCode, header::TRANSFER_ENCODING, request::Parts};
use http_body::Body as _;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use crate::{
    telemetry::{Gauged, Metrics},
    types::SandboxId,
};

mod body;
mod dial;
mod download;
mod driver;
pub(crate) mod headers;
mod http2;
mod not_found;
mod pool;
mod quota;
mod stream;
mod tunnel;
mod ways;

use self::{
    body::Attempt,
    dial::Dialer,
    driver::Driver,
    http2::Hubs,
    pool::{Connection, Pool},
    stream::Stream,
    tunnel::Scratch,
};
pub(crate) use self::{
    body::Upload,
    dial::{DialError, DialRules, Ladder},
    download::{Download, DownloadError},
    http2::Vigilance,
    not_found::{may_say_not_found, says_not_found},
    pool::Life,
    quota::{Quota, Slot},
    tunnel::{ClientSide, Leg, Tunnel},
    ways::{Way, Ways},
};

/// Judges, before an address is dialled, whether who listens there is the sandbox. For places where
/// sandboxes share a machine with others.
pub trait ListenerGuard: Send + Sync + 'static {
    /// Whether `address` may be dialled for `sandbox`.
    fn may_dial<'a>(&'a self, sandbox: &'a SandboxId, address: SocketAddr) -> Judgement<'a>;
}

/// Whether it may.
pub type Judgement<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Sends requests; one per worker.
pub(crate) struct Forwarder {
    pool: Pool,
    hubs: Hubs,
    vigilance: Vigilance,
    dialer: Dialer,
    scratch: Scratch,
    metrics: Arc<Metrics>,
}

/// Where one request goes.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) sandbox: SandboxId,
    /// The authority to dial.
    pub(crate) address: String,
    /// Who shares HTTP/2 connections, where that is not everybody at the address.
    pub(crate) party: Option<String>,
    /// Connections are kept, and shared by those that mean the same life at the address; `None`: one
    /// connection, one exchange.
    pub(crate) shared: Option<Life>,
    /// The answer may turn out to be a node's, and the request be sent elsewhere: its head is kept.
    pub(crate) again: bool,
    /// Over HTTP/2, by prior knowledge.
    pub(crate) http2: bool,
    /// Another protocol is asked for.
    pub(crate) upgrade: bool,
    /// The sandbox was woken a moment ago: its port may not listen yet.
    pub(crate) ladder: Option<Ladder>,
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// There is no connection; nothing was sent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke before an answer began, and the request may have been seen.
    #[error("no answer: {0}")]
    Broken(#[source] hyper::Error),
    /// The client left in the middle of its upload; the exchange was aborted.
    #[error("the client left during its upload")]
    ClientLeft,
    /// The client's upload is no body; the exchange was aborted.
    #[error("the upload is malformed")]
    BadBody,
    /// The answer was 101, and nobody had asked for another protocol.
    #[error("the sandbox switched protocols unasked")]
    Switched,
    /// The request's Host cannot be one of HTTP/2; nobody was dialled.
    #[error("the Host is no authority")]
    BadHost,
    /// Whoever is there answered in something else than HTTP/2; nothing was sent.
    #[error("it does not speak HTTP/2")]
    NotHttp2,
}

impl Forwarder {
    pub(crate) fn new(
        rules: DialRules,
        vigilance: Vigilance,
        pool_idle_timeout: std::time::Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (pool, hubs) = (Pool::new(pool_idle_timeout), Hubs::new(pool_idle_timeout));
        Self { pool, hubs, vigilance, dialer: Dialer::new(rules), scratch: Scratch::new(), metrics }
    }

    /// Sends the request and waits for the head of the answer. Dropping the future aborts the exchange. Whoever
    /// takes the answer settles the upload: until then it may turn out to be a node's, and the request is sent
    /// elsewhere.
    ///
    /// A pooled connection that turns out dead is replaced, and the request sent again, if nothing of it
    /// was sent or if its method is idempotent and its body is all there (RFC 9110 §9.2.2).
    ///
    /// `head` is empty afterwards if it was sent for good.
    pub(crate) async fn send(
        self: &Rc<Self>,
        head: &mut Parts,
        upload: &Upload<Incoming>,
        to: &Destination,
    ) -> Result<Response<Box<Download>>, SendError> {
        if to.http2 {
            return Box::pin(self.send_http2(head, upload, to)).await;
        }
        let mut pooled = self.pooled(to);
        loop {
            let mut connection = match pooled.take() {
                Some(connection) => connection,
                None => Box::pin(self.another(to)).await?,
            };
            // A copy is dear: only where the head may be wanted again.
            let keep = to.again || connection.reused;
            let mut error = match connection.sender.try_send_request(request(head, upload, keep)).await {
                Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Box::pin(self.switch(answer, connection, to)).await;
                }
                Ok(answer) => return Ok(self.download(answer, connection.into(), to.shared.is_some())),
                Err(error) => error,
            };
            let untouched = error.take_message().is_some();
            let error = error.into_error();
            if let Some(error) = by_upload(&error) {
                return Err(error);
            }
            let again = connection.reused
                && upload.repeatable()
                && (untouched || (is_idempotent(&head.method) && died(&error)));
            if !again {
                return Err(SendError::Broken(error));
            }
            self.metrics.retry("stale_connection");
            // The others in the pool are of the same age: a fresh one ends the search, unless nothing was
            // sent and another one claims to be alive.
            if untouched {
                pooled = self.pooled(to);
            }
        }
    }

    /// From here on the connection carries bytes.
    async fn switch(
        self: &Rc<Self>,
        mut answer: Response<Incoming>,
        connection: Box<Connection>,
        to: &Destination,
    ) -> Result<Response<Box<Download>>, SendError> {
        if !to.upgrade {
            return Err(SendError::Switched);
        }
        let upgraded = hyper::upgrade::on(&mut answer).await.map_err(SendError::Broken)?;
        let Ok(parts) = upgraded.downcast::<TokioIo<Stream>>() else { return Err(SendError::Switched) };
        let tunnel = Tunnel {
            sandbox: parts.io.into_inner().into_inner(),
            ahead: parts.read_buf,
            scratch: self.scratch.clone(),
            _open: Gauged::new(&self.metrics.tunnels),
            _connection: connection.open,
        };
        Ok(answer.map(|_| Box::new(Download::switched(self.clone(), tunnel))))
    }

    /// Closes idle connections that are too old; to be called every few seconds.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.pool.sweep(now);
        self.hubs.sweep(now);
    }

    fn pooled(&self, to: &Destination) -> Option<Box<Connection>> {
        self.pool.take(&to.address, to.shared?)
    }

    /// None is idle.
    async fn another(&self, to: &Destination) -> Result<Box<Connection>, SendError> {
        let have_room = self.dialer.ways().have_room();
        if !have_room {
            self.pool.make_room();
        }
        if let Some(life) = to.shared
            && let Some(connection) = self.pool.wait(&to.address, life, have_room).await
        {
            return Ok(connection);
        }
        self.connect(to).await
    }

    async fn connect(&self, to: &Destination) -> Result<Box<Connection>, SendError> {
        let dialled = self.dialer.dial(&to.address, &to.sandbox, to.ladder).await;
        self.metrics.dial(dialled.as_ref().map_or_else(DialError::as_str, |_| "ok"));
        let (stream, way) = dialled?;
        self.handshake(stream, way, to).await
    }

    async fn handshake(&self, stream: TcpStream, way: Way, to: &Destination) -> Result<Box<Connection>, SendError> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(Stream::new(stream))).await.map_err(SendError::Broken)?;
        // Its error reaches the exchange that is under way.
        let driver = Driver::spawn(connection.with_upgrades());
        let address: Rc<str> = to.address.as_str().into();
        Ok(Box::new(Connection {
            sender,
            reused: false,
            member: to.shared.map(|_| self.pool.join(&address)),
            address,
            life: to.shared.unwrap_or_default(),
            driver,
            open: way,
        }))
    }
}

/// One attempt to send it. Not part of the story above: what is there stays in the future while it waits.
fn request(head: &mut Parts, upload: &Upload<Incoming>, keep: bool) -> Request<Attempt<Incoming>> {
    let body = upload.attempt();
    // The copy is what is kept: hyper reads the answer into the map that was sent, and that one has room.
    let kept = if keep { head.clone() } else { Request::new(()).into_parts().0 };
    let mut head = std::mem::replace(head, kept);
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        // hyper would do so by itself, but sends GET and HEAD of unknown length without their bodies.
        head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Request::from_parts(head, body)
}

/// RFC 9110 §9.2.2
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE)
}

/// Whether the exchange ended because of its upload: the client broke it off, or sent what is no body.
fn by_upload(error: &hyper::Error) -> Option<SendError> {
    use std::error::Error as _;
    // A connection that closes before it has the request is an error around an error, too.
    if !error.is_user() {
        return None;
    }
    // What our own body says; then what hyper made of the client's socket.
    let upload = error.source()?.downcast_ref::<hyper::Error>()?;
    Some(if is_malformed(upload) { SendError::BadBody } else { SendError::ClientLeft })
}

/// Whether an upload ended for not being a body, rather than by its client.
fn is_malformed(upload: &hyper::Error) -> bool {
    use std::{error::Error as _, io::ErrorKind};
    let io = upload.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData))
}

/// Whether the connection ended before an answer, rather than the answer being wrong.
fn died(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let source = error.source();
    let io = source.is_some_and(|source| {
        source.is::<std::io::Error>() || source.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_io)
    });
    error.is_incomplete_message() || error.is_closed() || error.is_canceled() || io
}
