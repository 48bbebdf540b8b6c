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

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn, rc::Rc};

    use bytes::Bytes;
    use http::Request;
    use http_body_util::Empty;
    use hyper::client::conn::http1::handshake;
    use hyper_util::rt::TokioIo;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        task::{LocalSet, yield_now},
    };

    use super::*;

    /// Whoever is ready has had its turn.
    async fn all_had_their_turn() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn each_piece_of_an_answer_that_is_taken_wakes_the_connection_but_the_last() {
        let test = async {
            let (near, mut peer) = tokio::io::duplex(1024);
            let (mut sender, connection) = handshake(TokioIo::new(near)).await.expect("a connection");
            let turns = Rc::new(Cell::new(0));
            let driver = Driver::spawn({
                let (turns, mut connection) = (turns.clone(), Box::pin(connection));
                poll_fn(move |task| {
                    turns.set(turns.get() + 1);
                    connection.as_mut().poll(task)
                })
            });
            let request = Request::get("/").header("host", "a").body(Empty::<Bytes>::new()).expect("a request");
            let answer = tokio::task::spawn_local(sender.send_request(request));
            peer.read_u8().await.expect("a request");
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await.expect("a peer");
            let mut body = answer.await.expect("a task").expect("an answer").into_body();
            let mut turns_at = async |end: bool| {
                all_had_their_turn().await;
                let before = turns.get();
                let frame = poll_fn(|task| driver.taking(&mut body, |body| body.poll_frame(task))).await;
                assert_eq!(frame.expect("a piece").expect("an answer").into_data().expect("data").len(), 5);
                assert_eq!(body.is_end_stream(), end);
                all_had_their_turn().await;
                turns.get() - before
            };
            assert_eq!(turns_at(false).await, 1, "it may read on");
            peer.write_all(b"world").await.expect("a peer");
            assert_eq!(turns_at(true).await, 0, "there is nothing to read");
            let before = turns.get();
            driver.spent(body);
            all_had_their_turn().await;
            assert_eq!(turns.get(), before);
            assert!(sender.is_ready(), "the next request may come");
        };
        LocalSet::new().run_until(test).await;
    }
}
