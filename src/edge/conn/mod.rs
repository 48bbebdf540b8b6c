//! One client connection: requests to the handler, answers back, until either side has enough.

use std::{error::Error, future::Future, net::IpAddr, pin::Pin, rc::Rc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::{socket::Transport, watch::Patience};
use crate::{forward::ClientSide, shutdown::Shutdown};

mod http1;
mod http2;

/// Answers requests.
pub(crate) trait Serve: 'static {
    /// What the server knows of a connection's other end.
    type Peer: 'static;
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin + 'static;
    /// The other end of a connection that no longer speaks HTTP.
    type Tunnel: Tunnel;
    /// Once for each connection, before its first request. `secure`: over TLS.
    fn meet(&self, ip: IpAddr, secure: bool) -> Self::Peer;
    /// A small future, of which a connection may keep room for one.
    fn serve(
        &self,
        request: Request<Incoming>,
        peer: &Self::Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Unpin + 'static + use<Self>;
    /// What an answer is good for that ends HTTP: 101 (RFC 9110 §7.8), or 2xx to CONNECT (RFC 8441 §5).
    fn tunnel(answer: Self::Body) -> Option<Self::Tunnel>;
    /// A request was so malformed that it never came this far: hyper answered it with this status, or would
    /// have if the client had stayed.
    fn refused(&self, status: u16);
}

pub(crate) trait Tunnel: 'static {
    /// Carries bytes until both sides have ended. `ahead`: what the client has sent already.
    fn run<C: ClientSide>(self, client: C, ahead: Bytes) -> impl Future<Output = ()>;
}

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Who connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) ip: IpAddr,
    /// It came over TLS.
    pub(crate) secure: bool,
}

/// Serves the connection to its end. Boxed, a future each: that of the one must not be as large as that of the other.
pub(crate) fn serve<S: Serve, T: Transport>(
    transport: T,
    protocol: Protocol,
    client: Client,
    server: Rc<S>,
    patience: Patience,
    shutdown: &Shutdown,
) -> Pin<Box<dyn Future<Output = ()> + '_>> {
    match protocol {
        Protocol::Http1 => Box::pin(http1::serve(transport, client, server, patience, shutdown)),
        Protocol::Http2 => Box::pin(http2::serve(transport, client, server, patience, shutdown)),
    }
}
