//! TLS with clients (RFC 8446, RFC 5246): the handshake, and the connection that comes of it.

use std::{
    io::{self, Write},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::{HandshakeKind, ServerConfig};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    conn::Protocol,
    linger::linger,
    socket::{Socket, Transport},
};

mod certificates;
mod choice;
mod handshakes;

pub(crate) use self::certificates::{Certificates, Shown};
pub(super) use self::handshakes::Handshakes;

/// What is offered by ALPN (RFC 7301), the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How long a client that does not speak TLS may take to read that.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection whose handshake is done.
pub(super) struct Secure(Box<TlsStream<Socket>>);

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client wants what is not offered, or sent what is no TLS; it was told so.
    Refused,
    /// The client left.
    Left,
}

impl Secure {
    pub(super) async fn accept(socket: Socket, config: Arc<ServerConfig>) -> Result<Self, Failure> {
        match TlsAcceptor::from(config).accept(socket).into_fallible().await {
            Ok(stream) => Ok(Self(Box::new(stream))),
            Err((error, socket)) => {
                tracing::debug!(%error, "no TLS");
                // Only rustls says this; all else is the socket's own.
                if error.kind() != io::ErrorKind::InvalidData {
                    return Err(Failure::Left);
                }
                let _ = timeout(GOODBYE, linger(socket)).await;
                Err(Failure::Refused)
            }
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        match self.0.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        }
    }

    pub(super) fn is_resumed(&self) -> bool {
        self.0.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl Transport for Secure {
    fn tcp(&self) -> &TcpStream {
        self.0.get_ref().0.tcp()
    }
}

impl Drop for Secure {
    /// Says that this is the end (RFC 8446 §6.1), as dropping a TCP connection does by itself; but not where the
    /// connection is to be reset, because its end would pass for an answer's.
    fn drop(&mut self) {
        let is_reset = SockRef::from(self.tcp()).linger().is_ok_and(|linger| linger == Some(Duration::ZERO));
        if !is_reset {
            let (socket, session) = self.0.get_mut();
            session.send_close_notify();
            let mut rest = AtOnce(socket.tcp());
            while session.wants_write() && session.write_tls(&mut rest).is_ok_and(|written| written > 0) {}
        }
    }
}

/// Takes what the kernel takes without waiting.
struct AtOnce<'s>(&'s TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Secure {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secure {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, bufs)
    }
}
