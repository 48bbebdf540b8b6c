//! A request's body on its way up. It streams; the beginning is kept for a while, so that a request
//! that no sandbox can have seen may be sent again.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};

use super::headers::clean_trailers;

/// How much of a sent body is kept until the answer begins.
const KEEP: usize = 64 * 1024;

mod leftover;

/// The client's body, and what was taken of it so far.
pub(crate) struct Upload<B>(Rc<RefCell<Source<B>>>);

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Source<B> {
    body: B,
    hint: SizeHint,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// Everything taken so far is in `kept`, and goes on being put there.
    complete: bool,
    /// Which attempt may read; earlier ones are dead.
    attempt: u32,
    /// The present attempt has taken all of it.
    taken: bool,
    /// The peer is there, and an attempt begins as soon as it has said how.
    awaited: bool,
    /// Who waits for one of these, or for an attempt.
    waiting: Option<Waker>,
    /// The client did not finish it.
    broken: bool,
    /// What it comes by.
    version: Version,
    /// It ended in trailers.
    trailers: bool,
}

/// One attempt to send the body: from its beginning, whatever earlier attempts took.
pub(crate) struct Attempt<B> {
    source: Rc<RefCell<Source<B>>>,
    number: u32,
    position: usize,
    sent: u64,
}

impl<B: Body<Data = Bytes> + Unpin> Upload<B> {
    /// `version`: what it comes by.
    pub(crate) fn new(body: B, version: Version) -> Self {
        let hint = body.size_hint();
        Self(Rc::new(RefCell::new(Source {
            body,
            hint,
            kept: Vec::new(),
            kept_bytes: 0,
            complete: true,
            attempt: 0,
            taken: false,
            awaited: false,
            waiting: None,
            broken: false,
            version,
            trailers: false,
        })))
    }

    /// Whether there is none; to be asked before the first attempt.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().body.is_end_stream()
    }

    /// Whether the body can be sent from its beginning (again).
    pub(crate) fn repeatable(&self) -> bool {
        self.0.borrow().complete
    }

    /// Begins an attempt and ends the one before.
    pub(crate) fn attempt(&self) -> Attempt<B> {
        let mut source = self.0.borrow_mut();
        source.attempt += 1;
        (source.taken, source.awaited) = (false, false);
        source.wake();
        if source.kept.is_empty() && source.body.is_end_stream() {
            source.take_end();
        }
        Attempt { source: self.0.clone(), number: source.attempt, position: 0, sent: 0 }
    }

    /// Waits until the present attempt has taken the whole body, or an attempt is [awaited](Self::awaited): from then
    /// on it is the sandbox's turn. Tells which attempt is the last.
    pub(crate) async fn their_turn(&self) -> u32 {
        poll_fn(|cx| {
            let mut source = self.0.borrow_mut();
            if source.taken || source.awaited {
                return Poll::Ready(source.attempt);
            }
            // One request has one who waits.
            source.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits for another attempt than this.
    pub(crate) async fn another_attempt(&self, than: u32) {
        poll_fn(|cx| {
            let mut source = self.0.borrow_mut();
            if source.attempt != than {
                return Poll::Ready(());
            }
            source.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// An attempt begins as soon as its peer, who is there, says how.
    pub(crate) fn awaited(&self) {
        let mut source = self.0.borrow_mut();
        source.awaited = true;
        source.wake();
    }

    /// Whether the client left it unfinished.
    pub(crate) fn broken(&self) -> bool {
        self.0.borrow().broken
    }

    /// Whether it is not certain that all who read the client's connection saw the body end where it did here. hyper
    /// looks for the end of chunks' trailers by CRLF alone, and takes a bare LF for one when it reads them.
    pub(crate) fn end_is_doubtful(&self) -> bool {
        let source = self.0.borrow();
        source.hint.exact().is_none() && (source.trailers || !source.taken)
    }

    /// The same body, to be asked about.
    pub(crate) fn another(&self) -> Self {
        Self(self.0.clone())
    }

    /// The answer is the sandbox's: nothing will be sent again.
    pub(crate) fn settle(&self) {
        self.0.borrow_mut().complete = false;
    }
}

impl<B> Source<B> {
    /// The present attempt has taken all of the body.
    fn take_end(&mut self) {
        self.taken = true;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    /// Takes the next frame of the body itself: the attempt has sent all that was kept.
    fn poll_fresh(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean_trailers(trailers);
        }
        if matches!(frame, Poll::Ready(None)) && self.version == Version::HTTP_2 && !self.body.is_end_stream() {
            // Reset with `NO_ERROR`: hyper takes it for the end, and a sandbox would take it for the whole. The
            // request is dropped in a moment, as whenever its client leaves.
            self.broken = true;
            return Poll::Pending;
        }
        self.broken |= matches!(frame, Poll::Ready(Some(Err(_))));
        self.trailers |= matches!(&frame, Poll::Ready(Some(Ok(frame))) if frame.is_trailers());
        if self.complete
            && let Poll::Ready(Some(Ok(frame))) = &frame
        {
            // Trailers are the end; a body with trailers is not sent twice.
            let data = frame.data_ref().filter(|data| self.kept_bytes + data.len() <= KEEP);
            self.complete = data.is_some();
            if let Some(data) = data {
                self.kept_bytes += data.len();
                self.kept.push(data.clone());
            }
        }
        if !self.complete && !self.kept.is_empty() {
            self.kept = Vec::new();
        }
        frame
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Attempt<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let mut source = this.source.borrow_mut();
        if source.attempt != this.number {
            // The connection of a former attempt is being torn down; it must not end its message well.
            return Poll::Pending;
        }
        let frame = match source.kept.get(this.position).cloned() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => source.poll_fresh(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            this.position += 1;
            this.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        // Where the end is known nobody asks for more.
        let over = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => source.body.is_end_stream() && this.position >= source.kept.len(),
            _ => false,
        };
        if over {
            source.take_end();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let source = self.source.borrow();
        source.body.is_end_stream() && self.position >= source.kept.len()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = &self.source.borrow().hint;
        match hint.exact() {
            Some(exact) => SizeHint::with_exact(exact.saturating_sub(self.sent)),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, pin::pin};

    use http_body_util::BodyExt as _;

    use super::*;

    /// And whether their end is told.
    struct Chunks(VecDeque<Bytes>, bool);

    impl Body for Chunks {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty() && self.1
        }
    }

    fn upload(sizes: &[usize]) -> Upload<Chunks> {
        Upload::new(Chunks(sizes.iter().map(|size| vec![7; *size].into()).collect(), true), Version::HTTP_11)
    }

    async fn take(attempt: &mut Attempt<Chunks>, frames: usize) -> usize {
        let mut bytes = 0;
        for _ in 0..frames {
            bytes += attempt.frame().await.expect("a frame").expect("no error").into_data().expect("data").len();
        }
        bytes
    }

    #[tokio::test]
    async fn what_an_http_2_client_leaves_without_its_end_has_none() {
        for (version, http2) in [(Version::HTTP_11, false), (Version::HTTP_2, true)] {
            let upload = Upload::new(Chunks([Bytes::from_static(b"half")].into(), false), version);
            let mut attempt = upload.attempt();
            assert_eq!(take(&mut attempt, 1).await, 4);
            assert_eq!(futures_util::poll!(attempt.frame()).is_pending(), http2);
            assert_eq!(upload.broken(), http2);
        }
    }

    #[tokio::test]
    async fn a_short_beginning_is_sent_again_from_the_start() {
        let upload = upload(&[10, 20, 30]);
        let mut first = upload.attempt();
        assert_eq!(take(&mut first, 2).await, 30);
        assert!(upload.repeatable());
        let again = upload.attempt().collect().await.expect("no error").to_bytes();
        assert_eq!(again.len(), 60);
    }

    #[tokio::test]
    async fn beyond_the_bound_nothing_is_kept() {
        let upload = upload(&[KEEP, 1, 5]);
        let mut attempt = upload.attempt();
        take(&mut attempt, 1).await;
        assert!(upload.repeatable());
        take(&mut attempt, 1).await;
        assert!(!upload.repeatable() && upload.0.borrow().kept.is_empty());
        assert_eq!(take(&mut attempt, 1).await, 5);
        assert!(attempt.is_end_stream());
    }

    #[tokio::test]
    async fn once_the_answer_is_taken_nothing_is_kept() {
        let upload = upload(&[10, 20]);
        let mut attempt = upload.attempt();
        take(&mut attempt, 1).await;
        upload.settle();
        assert!(!upload.repeatable());
        assert_eq!(take(&mut attempt, 1).await, 20);
    }

    #[tokio::test]
    async fn an_answer_taken_during_a_repetition_loses_nothing() {
        let upload = upload(&[10, 20, 30]);
        take(&mut upload.attempt(), 2).await;
        let mut again = upload.attempt();
        take(&mut again, 1).await;
        upload.settle();
        assert_eq!(take(&mut again, 2).await, 50);
        assert!(again.is_end_stream() && upload.0.borrow().kept.is_empty());
    }

    #[tokio::test]
    async fn a_former_attempt_reads_nothing_more() {
        let upload = upload(&[10, 20]);
        let mut former = upload.attempt();
        take(&mut former, 1).await;
        let mut present = upload.attempt();
        assert!(futures_util::poll!(former.frame()).is_pending());
        assert_eq!(take(&mut present, 2).await, 30);
    }

    #[tokio::test]
    async fn it_is_the_sandbox_s_turn_from_when_it_is_there_until_an_attempt_begins_and_again_when_that_is_taken() {
        let upload = upload(&[10]);
        assert!(futures_util::poll!(pin!(upload.their_turn())).is_pending());
        upload.awaited();
        let last = upload.their_turn().await;
        let mut begins = pin!(upload.another_attempt(last));
        assert!(futures_util::poll!(&mut begins).is_pending());
        let mut attempt = upload.attempt();
        begins.await;
        assert!(futures_util::poll!(pin!(upload.their_turn())).is_pending(), "the client may take its time");
        take(&mut attempt, 1).await;
        assert_ne!(upload.their_turn().await, last);
    }
}
