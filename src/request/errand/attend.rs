//! Waiting for an answer: of a sandbox that is silent, or that may have been frozen meanwhile.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use http::Response;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use crate::{
    forward::{Download, SendError, Upload},
    request::{context::Context, failure::Failure, handle::Handler},
    sandbox::{
        Ask, Unresolved,
        ports::{Catalog, Resumer},
    },
    types::Route,
};

/// Ends when the sandbox has been silent for `limit` since it has the whole request, or since it is there and has
/// not even said how to send it.
pub(super) async fn silence(limit: Option<Duration>, upload: &Upload<Incoming>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let attempt = upload.their_turn().await;
        tokio::select! {
            biased;
            () = upload.another_attempt(attempt) => {}
            () = sleep(limit) => return,
        }
    }
}

/// Waits for the answer of a sandbox that may have been frozen meanwhile: its kernel takes connections
/// and bytes, and nobody reads them. Looks for the sandbox again and again; if it sleeps, it is woken, and
/// the same exchange goes on. Nothing is sent twice.
pub(super) async fn attend<C: Catalog, R: Resumer>(
    handler: &Handler<C, R>,
    mut ask: Ask<'_>,
    wakes: impl Fn(&Context) -> bool,
    upload: &Upload<Incoming>,
    sending: impl Future<Output = Result<Response<Box<Download>>, SendError>>,
    route: &Arc<Route>,
    context: &mut Context,
) -> Result<Result<Response<Box<Download>>, SendError>, Failure> {
    let mut sending = pin!(sending);
    let limit = context.terms.response_header_timeout;
    let mut generation = route.generation;
    let mut give_up = pin!(silence(limit, upload));
    loop {
        tokio::select! {
            biased;
            sent = &mut sending => return Ok(sent),
            () = &mut give_up => return Err(Failure::UpstreamTimeout),
            () = sleep(context.terms.look_again) => {}
        }
        ask.wakes = wakes(context);
        context.hold.renew(context.terms.hold_timeout);
        let before = context.hold.held();
        let found = tokio::select! {
            biased;
            sent = &mut sending => Err(sent),
            found = handler.resolver.resolve(&ask, &mut context.hold, Instant::now()) => Ok(found),
        };
        context.waited(before);
        let found = match found {
            Ok(found) => found,
            // A woken sandbox may well answer before the control plane says that it was woken.
            Err(sent) => return Ok(sent),
        };
        match found {
            Ok(found) if found.placement.node != route.placement.node => return Err(Failure::Moved),
            Ok(found) if found.generation != generation => {
                generation = found.generation;
                context.woken = found.woken.or(context.woken);
                // The time for an answer starts when there is somebody to give it.
                give_up.set(silence(limit, upload));
            }
            // Nothing new; or nothing can be told now, and the exchange may well be alive.
            Ok(_) | Err(Unresolved::Unavailable | Unresolved::TooManyHeld) => {}
            Err(unresolved) => return Err(unresolved.into()),
        }
    }
}
