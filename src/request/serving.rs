//! The stages of one request, each a future of its own: a request that waits for its sandbox, maybe for minutes and
//! among thousands, keeps no room for the exchange that comes after; one whose sandbox runs begins with that.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context as Task, Poll, ready},
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

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Response<Reply>> {
        loop {
            match ready!(self.0.as_mut().poll(task)) {
                Stage::Next(next) => *self = next,
                Stage::Over(answer) => return Poll::Ready(answer),
            }
        }
    }
}

impl Serving {
    /// It is not even looked for.
    pub(super) fn over(answer: Response<Reply>) -> Self {
        Self(Box::pin(std::future::ready(Stage::Over(answer))))
    }

    /// Waits until it is known where the sandbox runs, and goes there.
    pub(super) fn park<C: Catalog, R: Resumer>(errand: Errand<C, R>, mut context: Box<Context>) -> Self {
        Self(Box::pin(async move {
            let since = context.started();
            let found = {
                let mut resolving = pin!(errand.resolve(since, &mut context));
                poll_fn(|task| errand.handler.unless_cut(resolving.as_mut().poll(task))).await
            };
            match found {
                Ok(route) => Stage::Next(Self::go(errand, route, context)),
                Err(failure) => Stage::Over(errand.give_up(&failure, context)),
            }
        }))
    }

    /// Goes where it runs.
    pub(super) fn go<C: Catalog, R: Resumer>(
        mut errand: Errand<C, R>,
        route: std::sync::Arc<Route>,
        mut context: Box<Context>,
    ) -> Self {
        Self(Box::pin(async move {
            let told = {
                let handler = errand.handler.clone();
                let mut running = pin!(errand.run(route, &mut context));
                poll_fn(|task| handler.unless_cut(running.as_mut().poll(task))).await
            };
            Stage::Over(match told {
                Ok(brought) => errand.handler.pass_on(brought, errand.upgrade.as_deref(), context),
                Err(failure) => errand.give_up(&failure, context),
            })
        }))
    }
}

impl<C: Catalog, R: Resumer> Errand<C, R> {
    fn give_up(self, failure: &Failure, context: Box<Context>) -> Response<Reply> {
        self.upload.swallow();
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
