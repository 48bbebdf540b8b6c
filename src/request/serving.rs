//! The stages of one request, each a future of its own: a request that waits for its sandbox, maybe for minutes and
//! among thousands, keeps no room for the exchange that comes after; one whose sandbox runs begins with that.

use std::{
    future::{Future, poll_fn, ready},
    pin::{Pin, pin},
    sync::Arc,
    task::{self, Poll},
};

use http::Response;

use super::{context::Context, errand::Errand, failure::Failure, handle::Handler, reply::Reply};
use crate::{
    sandbox::{
        Unresolved,
        ports::{Catalog, Resumer},
    },
    types::Route,
};

/// A request on its way to its answer.
pub(crate) struct Serving(Pin<Box<dyn Future<Output = Stage>>>);

/// How a stage ends.
enum Stage {
    Next(Serving),
    Over(Response<Reply>),
}

impl Future for Serving {
    type Output = Response<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Response<Reply>> {
        loop {
            match task::ready!(self.0.as_mut().poll(cx)) {
                Stage::Next(next) => *self = next,
                Stage::Over(answer) => return Poll::Ready(answer),
            }
        }
    }
}

impl Serving {
    /// It is not even looked for.
    pub(super) fn over(answer: Response<Reply>) -> Self {
        Self(Box::pin(ready(Stage::Over(answer))))
    }

    /// Waits until it is known where the sandbox runs, and goes there.
    pub(super) fn park<C: Catalog, R: Resumer>(errand: Errand<C, R>, context: Box<Context>) -> Self {
        Self(Box::pin(parked(errand, context)))
    }

    /// Goes where it runs.
    pub(super) fn go<C: Catalog, R: Resumer>(errand: Errand<C, R>, route: Arc<Route>, context: Box<Context>) -> Self {
        Self(Box::pin(under_way(errand, route, context)))
    }
}

#[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice")]
fn parked<C: Catalog, R: Resumer>(
    errand: Errand<C, R>,
    mut context: Box<Context>,
) -> impl Future<Output = Stage> + use<C, R> {
    async move {
        let since = context.started();
        let found = {
            let mut resolving = pin!(errand.resolve(since, &mut context));
            poll_fn(|cx| errand.handler.unless_cut(resolving.as_mut().poll(cx))).await
        };
        match found {
            Ok(route) => Stage::Next(Serving::go(errand, route, context)),
            Err(failure) => Stage::Over(errand.give_up(&failure, context)),
        }
    }
}

#[expect(clippy::manual_async_fn, reason = "an async fn keeps its arguments twice")]
fn under_way<C: Catalog, R: Resumer>(
    mut errand: Errand<C, R>,
    route: Arc<Route>,
    mut context: Box<Context>,
) -> impl Future<Output = Stage> + use<C, R> {
    async move {
        let told = {
            let handler = errand.handler.clone();
            let mut running = pin!(errand.run(route, &mut context));
            poll_fn(|cx| handler.unless_cut(running.as_mut().poll(cx))).await
        };
        Stage::Over(match told {
            Ok(brought) => errand.handler.pass_on(brought, errand.upgrade.as_deref(), context),
            Err(failure) => errand.give_up(&failure, context),
        })
    }
}

impl<C: Catalog, R: Resumer> Errand<C, R> {
    fn give_up(self, failure: &Failure, mut context: Box<Context>) -> Response<Reply> {
        context.closes = self.upload.swallow(context.closes);
        self.handler.answer(failure, context)
    }
}

impl<C: Catalog, R: Resumer> Handler<C, R> {
    /// The end of the process wakes every connection. Whoever still waits is told; that flights are lost then says
    /// nothing of the control plane.
    fn unless_cut<T>(&self, polled: Poll<Result<T, Failure>>) -> Poll<Result<T, Failure>> {
        match polled {
            Poll::Pending | Poll::Ready(Err(Failure::Unresolved(Unresolved::Unavailable)))
                if self.site.shutdown.is_cut() =>
            {
                Poll::Ready(Err(Failure::Draining))
            }
            polled => polled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sandbox::ports::{CatalogError, Located, Wake, WakeError},
        types::{Placement, SandboxId},
    };

    enum Nobody {}

    impl Catalog for Nobody {
        async fn locate(&self, _: &SandboxId) -> Result<Located, CatalogError> {
            match *self {}
        }
    }

    impl Resumer for Nobody {
        async fn resume(&self, _: &Wake) -> Result<Placement, WakeError> {
            match *self {}
        }
    }

    /// There may be tens of thousands: each fits into a class of jemalloc's, beyond which it costs the next.
    #[test]
    fn a_request_that_waits_is_small() {
        fn size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(parked::<Nobody, Nobody>) <= 1024, "{}", size(parked::<Nobody, Nobody>));
        assert!(size_of::<Context>() <= 448, "{}", size_of::<Context>());
    }

    #[test]
    fn so_is_one_that_waits_for_its_answer() {
        fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(under_way::<Nobody, Nobody>) <= 1536, "{}", size(under_way::<Nobody, Nobody>));
    }
}
