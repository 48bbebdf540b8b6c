//! What hyper runs for one connection, beside its driver: the transport, and two futures for each exchange.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, rt::Executor};
use tokio::task::{JoinHandle, spawn_local};

use crate::forward::{body::Attempt, ways::Way};

/// hyper's executor of one connection.
#[derive(Clone)]
pub(super) struct Tasks(Rc<Inner>);

struct Inner {
    /// Counts the connection as long as its transport runs.
    open: Cell<Option<Way>>,
    transport: Cell<Option<JoinHandle<()>>>,
    /// Whose body hyper has begun to read, and spawns a future for next.
    begun: RefCell<Option<Rc<Lifeline>>>,
    /// To be woken when the transport has done something, as long as that is of interest.
    curious: RefCell<Option<Waker>>,
}

impl Tasks {
    pub(super) fn new(open: Way) -> Self {
        let (open, transport) = (Cell::new(Some(open)), Cell::default());
        Self(Rc::new(Inner { open, transport, begun: RefCell::default(), curious: RefCell::default() }))
    }

    /// The transport, once hyper has started it: it ends with the connection.
    pub(super) fn take_transport(&self) -> Option<JoinHandle<()>> {
        self.0.transport.take()
    }

    /// Whom to wake each time that the transport did something.
    pub(super) fn tell(&self, curious: Option<Waker>) {
        *self.0.curious.borrow_mut() = curious;
    }

    /// The body of a request on this connection.
    pub(super) fn outgoing(&self, attempt: Attempt<Incoming>, line: Rc<Lifeline>) -> Outgoing {
        Outgoing { attempt, line, introduce: Some(self.clone()) }
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        let tasks = self.0.clone();
        if let Some(open) = self.0.open.take() {
            // hyper starts it first of all, and hands it to nobody else.
            self.0.transport.set(Some(spawn_local(async move {
                let _open = open;
                let mut transport = pin!(future);
                poll_fn(|cx| {
                    let polled = transport.as_mut().poll(cx);
                    if let Some(curious) = &*tasks.curious.borrow() {
                        curious.wake_by_ref();
                    }
                    polled
                })
                .await;
            })));
            return;
        }
        match self.0.begun.take() {
            Some(line) => drop(spawn_local(line.hold(future))),
            None => drop(spawn_local(future)),
        }
    }
}

/// Between an exchange and the task that sends its body. That task waits for the peer to take more, and looks
/// at nothing else meanwhile: it ends with this, and so the stream is reset.
#[derive(Default)]
pub(super) struct Lifeline {
    cut: Cell<bool>,
    task: RefCell<Option<Waker>>,
    fault: Cell<Option<UploadFault>>,
}

/// Why a body ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadFault {
    Malformed,
    ClientLeft,
}

impl Lifeline {
    /// Nobody wants the exchange any longer.
    pub(super) fn cut(&self) {
        self.cut.set(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    pub(super) fn fault(&self) -> Option<UploadFault> {
        self.fault.get()
    }

    async fn hold(self: Rc<Self>, future: impl Future<Output = ()>) {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if self.cut.get() {
                return Poll::Ready(());
            }
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                let mut task = self.task.borrow_mut();
                if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                    *task = Some(cx.waker().clone());
                }
            }
            polled
        })
        .await;
    }
}

/// One attempt to send a body, on one connection.
pub(crate) struct Outgoing {
    attempt: Attempt<Incoming>,
    line: Rc<Lifeline>,
    /// hyper reads a body once before it spawns a future that goes on with it, or finds that there is no need.
    introduce: Option<Tasks>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        if let Some(tasks) = this.introduce.take() {
            *tasks.0.begun.borrow_mut() = Some(this.line.clone());
        }
        let frame = std::pin::Pin::new(&mut this.attempt).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = &frame {
            let malformed = crate::forward::is_malformed(error);
            this.line.fault.set(Some(if malformed { UploadFault::Malformed } else { UploadFault::ClientLeft }));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.attempt.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.attempt.size_hint()
    }
}
