//! Bytes both ways between a client and a sandbox that speak another protocol than HTTP from now on. Nobody is
//! hurried; what one side ends, the other sees ended, and may go on itself.

use std::{
    cell::RefCell,
    future::{Future as _, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Duration, Instant, Sleep, sleep},
};

use super::ways::Way;
use crate::telemetry::Gauged;

/// The sandbox's side of it.
pub(crate) struct Tunnel {
    pub(super) sandbox: TcpStream,
    /// What the sandbox has sent already.
    pub(super) ahead: Bytes,
    pub(super) scratch: Scratch,
    pub(super) _open: Gauged,
    pub(super) _connection: Way,
}

/// The client's side of it.
pub(crate) trait ClientSide: AsyncRead + AsyncWrite + Unpin {
    /// Whether the client is gone that has ended its own direction: nothing is read from it any more, and a sandbox
    /// that has nothing to say would never find out.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool;
}

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    Client,
    Sandbox,
}

/// Where bytes are between being read and written: one for all tunnels of a worker, so that a silent one
/// costs no memory for them.
#[derive(Clone)]
pub(crate) struct Scratch(Rc<RefCell<Box<[u8]>>>);

const SCRATCH: usize = 64 * 1024;

impl Scratch {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(vec![0; SCRATCH].into())))
    }
}

impl Tunnel {
    /// Carries bytes until both sides have ended, or one has failed: which, is the error. `ahead`: what the
    /// client has sent already. `sent` is told how many bytes went to the client.
    pub(crate) async fn run<C: ClientSide>(
        self,
        mut client: C,
        ahead: Bytes,
        mut sent: impl FnMut(usize),
    ) -> Result<(), Leg> {
        let Self { mut sandbox, ahead: from_sandbox, scratch, .. } = self;
        let (mut up, mut down) = (Lane::new(ahead), Lane::new(from_sandbox));
        let mut look: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            let mut scratch = scratch.0.borrow_mut();
            let up = up.poll(cx, &mut client, &mut sandbox, &mut scratch, |_| {});
            let up = up.map_err(|at| if at == At::Source { Leg::Client } else { Leg::Sandbox })?;
            let down = down.poll(cx, &mut sandbox, &mut client, &mut scratch, &mut sent);
            let down = down.map_err(|at| if at == At::Source { Leg::Sandbox } else { Leg::Client })?;
            match (up, down) {
                (Poll::Ready(()), Poll::Ready(())) => return Poll::Ready(Ok(())),
                (Poll::Pending, _) => return Poll::Pending,
                (Poll::Ready(()), Poll::Pending) => {}
            }
            let look = look.get_or_insert_with(|| Box::pin(sleep(Duration::ZERO)));
            while look.as_mut().poll(cx).is_ready() {
                if client.is_gone(cx) {
                    return Poll::Ready(Err(Leg::Client));
                }
                look.as_mut().reset(Instant::now() + LOOK);
            }
            Poll::Pending
        })
        .await
    }
}

/// One direction.
struct Lane {
    /// Read, and not written yet.
    rest: Bytes,
    unflushed: bool,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Carrying,
    /// The source has ended; the sink shall see that.
    Ending,
    Ended,
}

/// Where it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Source,
    Sink,
}

impl Lane {
    fn new(ahead: Bytes) -> Self {
        Self { rest: ahead, unflushed: false, step: Step::Carrying }
    }

    /// Carries what there is. Ready when the source has ended and the sink has been told.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut (impl AsyncRead + Unpin),
        sink: &mut (impl AsyncWrite + Unpin),
        scratch: &mut [u8],
        mut carried: impl FnMut(usize),
    ) -> Poll<Result<(), At>> {
        loop {
            while !self.rest.is_empty() {
                let written = ready!(write(sink, cx, &self.rest))?;
                self.rest.advance(written);
                self.unflushed = true;
                carried(written);
            }
            // What is empty must not keep what it was cut from.
            self.rest = Bytes::new();
            match self.step {
                Step::Ended => return Poll::Ready(Ok(())),
                Step::Ending => {
                    ready!(Pin::new(&mut *sink).poll_shutdown(cx)).map_err(|_| At::Sink)?;
                    self.step = Step::Ended;
                    continue;
                }
                Step::Carrying => {}
            }
            let mut read = ReadBuf::new(scratch);
            if Pin::new(&mut *source).poll_read(cx, &mut read).map_err(|_| At::Source)?.is_pending() {
                if self.unflushed {
                    ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| At::Sink)?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
            let read = read.filled();
            if read.is_empty() {
                self.step = Step::Ending;
                continue;
            }
            let written = match write(sink, cx, read)? {
                Poll::Ready(written) => written,
                Poll::Pending => 0,
            };
            self.unflushed |= written > 0;
            carried(written);
            // The source is not read again before this is gone: that is the backpressure.
            self.rest = Bytes::copy_from_slice(&read[written..]);
        }
    }
}

fn write(sink: &mut (impl AsyncWrite + Unpin), cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, At>> {
    let written: Poll<io::Result<usize>> = Pin::new(sink).poll_write(cx, bytes);
    written.map(|written| written.ok().filter(|written| *written > 0).ok_or(At::Sink))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        net::TcpListener,
    };

    use super::*;
    use crate::forward::ways::Ways;

    impl ClientSide for DuplexStream {
        fn is_gone(&mut self, _: &mut Context<'_>) -> bool {
            false
        }
    }

    /// A tunnel, the application at one end, the client at the other.
    async fn tunnel(ahead: &'static [u8]) -> (Tunnel, TcpStream, DuplexStream, DuplexStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let sandbox = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let application = listener.accept().await.expect("a connection").0;
        let (client, ours) = duplex(16);
        let gauge = metrics::Gauge::noop;
        let (open, connection) = (Gauged::new(&gauge()), Ways::new(1, gauge()).take().expect("room"));
        let tunnel =
            Tunnel { sandbox, ahead: ahead.into(), scratch: Scratch::new(), _open: open, _connection: connection };
        (tunnel, application, client, ours)
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_what_was_read_ahead_goes_first() {
        let (tunnel, mut application, mut client, ours) = tunnel(b"hello ").await;
        let mut sent = 0;
        let carrying = tunnel.run(ours, Bytes::from_static(b"first "), |bytes| sent += bytes);
        let talk = async {
            client.write_all(b"second").await.expect("a peer that reads");
            application.write_all(b"client").await.expect("a peer that reads");
            let mut heard = [0; 12];
            application.read_exact(&mut heard).await.expect("bytes");
            assert_eq!(&heard, b"first second");
            client.read_exact(&mut heard).await.expect("bytes");
            assert_eq!(&heard, b"hello client");
            drop((client, application));
        };
        let (_, ()) = tokio::join!(carrying, talk);
        assert_eq!(sent, 12);
    }

    #[tokio::test]
    async fn each_side_may_end_alone() {
        let (tunnel, mut application, mut client, ours) = tunnel(b"").await;
        let talk = async {
            client.shutdown().await.expect("a peer");
            assert_eq!(application.read(&mut [0; 8]).await.expect("no error"), 0, "the end is seen");
            application.write_all(&vec![7; 100_000]).await.expect("a peer that reads");
            application.shutdown().await.expect("a peer");
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.expect("no error");
            assert_eq!(rest.len(), 100_000);
        };
        let (ended, ()) = tokio::join!(tunnel.run(ours, Bytes::new(), |_| {}), talk);
        assert_eq!(ended, Ok(()));
    }

    #[tokio::test]
    async fn the_side_that_fails_is_told_and_the_other_is_let_go() {
        let (tunnel, application, mut client, ours) = tunnel(b"").await;
        application.set_zero_linger().expect("a socket");
        drop(application);
        let talk = async {
            // What the reset leaves to read is the end.
            let _ = client.read(&mut [0; 8]).await;
        };
        let (ended, ()) = tokio::join!(tunnel.run(ours, Bytes::new(), |_| {}), talk);
        assert_eq!(ended, Err(Leg::Sandbox));
    }
}
