//! The task behind an HTTP/1.1 connection, and when it need not be woken.
//!
//! hyper wakes it at each piece of an answer that is taken, to read the next one; at the last piece it wakes it for
//! nothing, which costs as much as to look for a request. So what happens while somebody takes a piece is told to the
//! task afterwards, and not at all once the answer is over.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Wake, Waker},
};

use http_body::Body;
use tokio_util::task::AbortOnDropHandle;

/// Drives a connection until dropped.
pub(crate) struct Driver {
    bell: Arc<Bell>,
    _task: AbortOnDropHandle<()>,
}

/// What the connection takes for its task's waker.
#[derive(Default)]
struct Bell {
    /// The task is the same all its life.
    task: OnceLock<Waker>,
    muffled: AtomicBool,
    /// It would have rung.
    missed: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.muffled.load(Relaxed) {
            self.missed.store(true, Relaxed);
        } else if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Driver {
    /// Its task is this worker's, as are all who wake it.
    pub(crate) fn spawn(connection: impl Future + 'static) -> Self {
        let bell = Arc::new(Bell::default());
        let task = tokio::task::spawn_local({
            let bell = bell.clone();
            async move {
                let waker = bell.clone().into();
                let mut connection = pin!(connection);
                std::future::poll_fn(|task| {
                    bell.task.get_or_init(|| task.waker().clone());
                    connection.as_mut().poll(&mut Context::from_waker(&waker)).map(drop)
                })
                .await;
            }
        });
        Self { bell, _task: AbortOnDropHandle::new(task) }
    }

    /// Takes from an answer's body.
    pub(super) fn taking<B: Body + Unpin, T>(&self, body: &mut B, take: impl FnOnce(Pin<&mut B>) -> T) -> T {
        self.bell.muffled.store(true, Relaxed);
        let taken = take(Pin::new(&mut *body));
        self.bell.muffled.store(false, Relaxed);
        if self.bell.missed.swap(false, Relaxed) && !body.is_end_stream() {
            self.bell.wake_by_ref();
        }
        taken
    }

    /// Drops a body that was read to its end.
    pub(super) fn spent<B>(&self, body: B) {
        self.bell.muffled.store(true, Relaxed);
        drop(body);
        self.bell.muffled.store(false, Relaxed);
        self.bell.missed.store(false, Relaxed);
    }
}
