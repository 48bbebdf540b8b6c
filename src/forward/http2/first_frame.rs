//! Whether a peer that is lost before it has greeted speaks HTTP/2 at all: the library tells of an error only.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Where a frame's type stands in it (RFC 9113 §4.1).
const KIND: usize = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// What a peer has said first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heard {
    #[default]
    Nothing,
    /// A frame with which a server may begin (RFC 9113 §3.4).
    Http2,
    Else,
}

/// A socket, and what its peer has said first.
pub(super) struct Listened {
    tcp: TcpStream,
    /// Bytes read, as far as they are looked at.
    read: usize,
    heard: Rc<Cell<Heard>>,
}

impl Listened {
    pub(super) fn new(tcp: TcpStream) -> (Self, Rc<Cell<Heard>>) {
        let heard = Rc::<Cell<Heard>>::default();
        (Self { tcp, read: 0, heard: heard.clone() }, heard)
    }

    fn look(&mut self, bytes: &[u8]) {
        if let Some(kind) = bytes.get(KIND - self.read) {
            self.heard.set(if matches!(*kind, SETTINGS | GOAWAY) { Heard::Http2 } else { Heard::Else });
            self.read = KIND + 1;
        } else if !bytes.is_empty() {
            self.heard.set(Heard::Else);
            self.read += bytes.len();
        }
    }
}

impl AsyncRead for Listened {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        if self.read <= KIND {
            self.look(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Listened {
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
