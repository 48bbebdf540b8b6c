//! A sandbox's connection that is read to its end, also when it can no longer be written to.
//!
//! A server that answers early and closes with an upload unread resets the connection: the answer is here, in the
//! kernel, and the next write fails. hyper would give up at that and never read it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub(super) struct Stream {
    tcp: TcpStream,
    /// Why it cannot be written to any more. Writes wait from then on, until a read tells the end.
    lost: Option<io::Error>,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self { tcp, lost: None }
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.tcp
    }

    fn written(&mut self, written: Poll<io::Result<usize>>, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) if is_reset(&error) => {
                self.lost = Some(error);
                // There may be an answer that nobody has looked for since.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            written => written,
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        // The kernel tells of a reset once. To whoever reads it would be an end in good order afterwards.
        if matches!(read, Poll::Ready(Ok(()))) && buf.filled().len() == before {
            return Poll::Ready(self.lost.take().map_or(Ok(()), Err));
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.lost.is_some() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.written(written, cx)
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
        if self.lost.is_some() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.written(written, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn what_came_before_a_reset_is_read_after_a_write_that_failed_and_then_the_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let mut near =
            Stream::new(TcpStream::connect(listener.local_addr().expect("one")).await.expect("a connection"));
        let (mut far, _) = listener.accept().await.expect("a connection");
        near.write_all(b"unread").await.expect("a peer");
        far.readable().await.expect("bytes");
        far.write_all(b"answer").await.expect("a peer");
        // With bytes unread, that is a reset.
        drop(far);
        let writes = std::future::poll_fn(|cx| Pin::new(&mut near).poll_write(cx, b"more").map(|_| ()));
        assert!(futures_util::poll!(writes).is_pending());
        let mut answer = Vec::new();
        let end = near.read_to_end(&mut answer).await.expect_err("no end in good order");
        assert!(answer == b"answer" && is_reset(&end), "{answer:?} {end}");
    }
}
