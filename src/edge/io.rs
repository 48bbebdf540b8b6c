//! A client's socket that watches itself. hyper's own head timer would also end idle keep-alive
//! connections, and hyper does not see a client leave while it has no reason to read (an unread body, a
//! pipelined request): so both are seen to here, whenever hyper touches the socket.
//!
//! hyper polls the connection's task when this timer fires and ends each of its turns with a read, a
//! write or a flush; an error from any of them ends the connection and drops its handler.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::{
    io::Interest,
    task::coop::has_budget_remaining,
    time::{Instant, Sleep, sleep_until},
};

use super::{
    socket::Transport,
    watch::{Phase, Watch},
};

pub(crate) struct ClientIo<T> {
    socket: TokioIo<T>,
    watch: Watch,
    timer: Pin<Box<Sleep>>,
    /// The timer will wake the connection's task, which is the same all its life.
    armed: bool,
    /// Whoever ends the socket now, be it the end of the process, resets it.
    abrupt: bool,
}

impl<T: Transport> ClientIo<T> {
    pub(crate) fn new(socket: T, watch: Watch) -> Self {
        let timer = Box::pin(sleep_until(watch.due()));
        Self { socket: TokioIo::new(socket), watch, timer, armed: false, abrupt: false }
    }

    /// The same without a watch: whatever is spoken from now on is no business of the timers'.
    pub(crate) fn into_inner(mut self) -> T {
        self.set_abrupt();
        self.socket.into_inner()
    }

    /// An end in the middle of an answer that only the end delimits would pass for its own.
    fn set_abrupt(&mut self) {
        let abrupt = self.watch.is_open_ended();
        if abrupt != self.abrupt {
            self.abrupt = abrupt;
            let _ = SockRef::from(self.socket.inner().tcp()).set_linger(abrupt.then_some(Duration::ZERO));
        }
    }

    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.set_abrupt();
        // The timer may ring early, never late: so a busy connection sets it a few times a second, not
        // twice a request.
        if self.watch.due() < self.timer.deadline() {
            self.timer.as_mut().reset(self.watch.due());
            self.armed = false;
        }
        // To poll a timer costs more than all else here, and this is called several times a request.
        if self.armed && !self.timer.is_elapsed() {
            return Ok(());
        }
        loop {
            // Without budget (tokio's, for one turn of a task) a timer is pending and wakes nobody.
            let heard = has_budget_remaining();
            if self.timer.as_mut().poll(cx).is_pending() {
                self.armed = heard;
                return Ok(());
            }
            if Instant::now() >= self.watch.due() {
                match self.watch.phase() {
                    Phase::Busy if self.client_is_gone() => return Err(io::ErrorKind::ConnectionReset.into()),
                    Phase::Busy => self.watch.still_there(),
                    Phase::Waiting | Phase::Head => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
            self.timer.as_mut().reset(self.watch.due());
        }
    }

    /// Whether the kernel has seen the client's FIN or RST, behind whatever bytes nobody has read.
    fn client_is_gone(&self) -> bool {
        let ready = std::pin::pin!(self.socket.inner().tcp().ready(Interest::READABLE));
        let seen = ready.poll(&mut Context::from_waker(Waker::noop()));
        matches!(seen, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }
}

impl<T: Transport> Read for ClientIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if read.is_ready() {
            self.watch.bytes();
        }
        read
    }
}

impl<T: Transport> Write for ClientIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.look(cx)?;
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.watch.set_blocked(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        // TLS keeps what the kernel does not take; hyper flushes when it has written all.
        self.watch.set_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.set_abrupt();
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.look(cx)?;
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.watch.set_blocked(written.is_pending());
        written
    }
}
