//! A client's TCP connection, and what else its requests may come over.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::forward::ClientSide;

/// What a connection runs over.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + 'static {
    /// The connection at the bottom of it.
    fn tcp(&self) -> &TcpStream;
}

impl<T: Transport> ClientSide for T {
    /// By a reset; also of one that ended both directions and went, which its kernel tells when it is asked whether it
    /// is still there.
    fn is_gone(&mut self, _: &mut Context<'_>) -> bool {
        !matches!(SockRef::from(self.tcp()).take_error(), Ok(None))
    }
}

/// A TCP connection, whose first bytes may have been looked at already.
pub(crate) struct Socket {
    tcp: TcpStream,
    ahead: Bytes,
}

/// What an HTTP/2 connection begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, ahead: Bytes::new() }
    }

    /// Bytes that were read from it, to be read (again) before all others.
    pub(crate) fn unread(&mut self, bytes: Bytes) {
        debug_assert!(self.ahead.is_empty(), "one look at a time");
        self.ahead = bytes;
    }

    /// Waits until there is something to read, be it the end.
    pub(crate) async fn says_something(&self) {
        if self.ahead.is_empty() {
            // Whatever is wrong, reading will tell.
            let _ = self.tcp.readable().await;
        }
    }

    /// Whether the client speaks HTTP/2, by prior knowledge (RFC 9113 §3.3). Waits for as many bytes as it
    /// takes to tell, and leaves them to be read.
    pub(crate) async fn speaks_http2(&mut self) -> io::Result<bool> {
        let mut buffer = [0; PREFACE.len()];
        let mut read = ReadBuf::new(&mut buffer);
        let is_preface = loop {
            let before = read.filled().len();
            poll_fn(|cx| Pin::new(&mut *self).poll_read(cx, &mut read)).await?;
            let seen = read.filled();
            if !PREFACE.starts_with(seen) || seen.len() == before {
                break false;
            }
            if seen.len() == PREFACE.len() {
                break true;
            }
        };
        // Some may have been unread before: what is left of that comes after.
        let rest = std::mem::take(&mut self.ahead);
        self.ahead = if rest.is_empty() {
            Bytes::copy_from_slice(read.filled())
        } else {
            [read.filled(), &rest].concat().into()
        };
        Ok(is_preface)
    }
}

impl Transport for Socket {
    fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.tcp).poll_read(cx, buf);
        }
        let taken = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead[..taken]);
        self.ahead.advance(taken);
        if self.ahead.is_empty() {
            // Its memory is not kept as long as the connection.
            self.ahead = Bytes::new();
            // With what has come since, a head is mostly whole: hyper doubles its buffer for a second read. What ends
            // the connection is seen again by the next.
            if buf.remaining() > 0 {
                let _ = Pin::new(&mut self.tcp).poll_read(cx, buf);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    async fn pair() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        (client, Socket::new(listener.accept().await.expect("a connection").0))
    }

    #[tokio::test]
    async fn the_first_bytes_tell_the_protocol_and_are_read_again() {
        for (first, http2) in [
            (&b"GET / HTTP/1.1\r\n"[..], false),
            (b"P", false),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", false),
            (b"PRI * HTTP/1.1\r\n", false),
            (PREFACE, true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04", true),
        ] {
            // In one piece, byte by byte, and partly unread already.
            for unread in [0, 1, first.len()] {
                let (mut client, mut socket) = pair().await;
                socket.unread(Bytes::copy_from_slice(&first[..unread]));
                for byte in &first[unread..] {
                    client.write_all(&[*byte]).await.expect("a peer that reads");
                    client.flush().await.expect("a peer that reads");
                }
                client.shutdown().await.expect("a peer that reads");
                assert_eq!(socket.speaks_http2().await.expect("no error"), http2, "{first:?}");
                let mut all = Vec::new();
                socket.read_to_end(&mut all).await.expect("no error");
                assert_eq!(all, first);
            }
        }
    }
}
