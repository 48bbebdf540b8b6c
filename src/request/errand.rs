//! There and back: where the sandbox runs, the request sent there, and the rules for sending it again.
//!
//! Again means: the place did not have the sandbox, so that no sandbox can have seen the request, and
//! looking once more gave another place or a wake. In direct mode also: the sandbox may have been
//! frozen while its answer is awaited; then it is woken, and the same exchange goes on.

use std::{future::Future, net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use http::{HeaderValue, Response, request::Parts};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use self::attend::{attend, silence};
use super::{
    connect_stream::{ConnectStream, Look},
    context::Context,
    failure::Failure,
    handle::Handler,
};
use crate::{
    config::Mode,
    forward::{
        Destination, DialError, Download, Ladder, Life, SendError, Slot, Upload, headers::Upgrade, may_say_not_found,
        says_not_found,
    },
    route::Misrouted,
    sandbox::{
        Ask, Finding, Hold, Trigger, Unresolved,
        ports::{Catalog, Resumer},
    },
    telemetry::traces::Cause,
    types::{Credentials, Port, Route, SandboxId},
};

mod attend;

/// A sandbox gone again right after its wake is woken once more; that is the third sending.
const MAX_SENDINGS: usize = 3;
/// How long after a wake a port may still be about to open.
const JUST_WOKEN: Duration = Duration::from_secs(10);
/// How long an open stream that broke off may wait for the catalog to say why.
const LOOK: Duration = Duration::from_secs(5);
/// The edge has seen by then that a client left.
const CLIENT_SEEN_GONE: Duration = Duration::from_secs(2);

/// One request on its way.
pub(super) struct Errand<C, R> {
    pub(super) handler: Rc<Handler<C, R>>,
    pub(super) sandbox: SandboxId,
    pub(super) port: Port,
    pub(super) credentials: Credentials,
    /// As the client sent it.
    pub(super) user_agent: Option<HeaderValue>,
    /// As it goes upstream; empty once it has gone for good.
    pub(super) head: Parts,
    pub(super) upload: Upload<Incoming>,
    pub(super) upgrade: Option<Box<Upgrade>>,
    pub(super) grpc: bool,
    /// It has been to the place that is known, in vain.
    pub(super) doubts: bool,
}

/// What the errand came back with.
pub(super) struct Brought {
    pub(super) answer: Response<Box<Download>>,
    /// The sandbox's connection, counted until the answer's body ends.
    pub(super) slot: Option<Slot>,
    /// Goes on under the answer; an answer may break off because of it.
    pub(super) upload: Upload<Incoming>,
    /// Of an open Connect stream of envd's: what to do when it breaks off.
    pub(super) look: Option<Look>,
}

/// The place did not have the sandbox. What that means is told if looking again does not help.
enum Missing {
    NoNode,
    Unreachable(DialError),
    /// An answer in a node's words; an application can say them too.
    Disowned(Box<Brought>),
}

enum Sent {
    Answered(Brought),
    Missing(Missing),
}

impl<C: Catalog, R: Resumer> Errand<C, R> {
    /// Runs it, at first to `route`; the time that it is held is spent from `context`'s.
    pub(super) async fn run(&mut self, mut route: Arc<Route>, context: &mut Context) -> Result<Brought, Failure> {
        for sending in 1..=MAX_SENDINGS {
            self.admit(&route)?;
            let missing = match self.send(&route, context).await? {
                Sent::Answered(mut brought) => {
                    self.upload.settle();
                    let open = self.port.is_envd() && ConnectStream::is_one(brought.answer.headers());
                    brought.look = open.then(|| self.look(&route, context.client));
                    return Ok(brought);
                }
                Sent::Missing(missing) => missing,
            };
            if matches!(missing, Missing::Unreachable(DialError::NoRoom(_))) {
                return self.told(missing);
            }
            self.handler.resolver.report(&self.sandbox, route.generation, self.finding(&missing));
            if sending == MAX_SENDINGS {
                return self.told(missing);
            }
            self.doubts = true;
            // Boxed, like all that most requests do without: the future of those stays small.
            let next = Box::pin(self.resolve(Instant::now(), context)).await?;
            if next.generation == route.generation {
                return self.told(missing);
            }
            if !self.upload.repeatable() {
                // It was the node that spoke: "not found" would be a lie about a sandbox that is elsewhere.
                return Err(Failure::Moved);
            }
            self.handler.site.metrics.retry("not_there");
            if matches!(missing, Missing::Disowned(_)) {
                context.missed("not_there");
            }
            route = next;
        }
        Err(Unresolved::Restless.into())
    }

    /// Where it runs, as far as that was learned after `since`; waits until that is known.
    pub(super) fn resolve(
        &self,
        since: Instant,
        context: &mut Context,
    ) -> impl Future<Output = Result<Arc<Route>, Failure>> {
        let before = context.hold.held();
        // See `Ticket::wait`.
        async move {
            let wakes = context.wakes(self.head.uri.path(), self.port, self.user_agent.as_ref());
            let patience = context.patience();
            let Context { client, hold, trace, .. } = &mut *context;
            let trigger = || {
                let cause = trace.as_ref().map(|trace| trace.cause());
                trigger(*client, self.user_agent.as_ref(), self.head.uri.path(), cause)
            };
            let Self { sandbox, credentials, doubts, .. } = self;
            let (client, doubts) = ((*client).into(), *doubts);
            let trigger = &trigger;
            let sent = false;
            let ask = Ask { sandbox, credentials, client, wakes, held: true, patience, trigger, doubts, sent };
            let found = self.handler.resolver.resolve(&ask, hold, since).await;
            context.waited(before);
            let found = found?;
            if context.hold.saw_wake() {
                context.woken = found.woken;
            }
            Ok(found)
        }
    }

    /// In direct mode a refused port says nothing of the others.
    fn finding(&self, missing: &Missing) -> Finding {
        match missing {
            Missing::NoNode => Finding::NoNode,
            Missing::Disowned(_) => Finding::Disowned,
            Missing::Unreachable(DialError::Refused | DialError::NotItsListener)
                if self.handler.site.mode == Mode::Direct =>
            {
                Finding::PortClosed
            }
            Missing::Unreachable(_) => Finding::Unreachable,
        }
    }

    /// In direct mode nobody behind this proxy guards the user ports.
    fn admit(&self, route: &Route) -> Result<(), Failure> {
        match &route.placement.access {
            Some(access) if self.handler.site.mode == Mode::Direct => {
                access.check_traffic(&self.credentials).map_err(Failure::Locked)
            }
            _ => Ok(()),
        }
    }

    async fn send(&mut self, route: &Arc<Route>, context: &mut Context) -> Result<Sent, Failure> {
        let site = &self.handler.site;
        let slot = site.quota.take(&self.sandbox).map_err(|()| Failure::TooManyConnections)?;
        let Some(destination) = self.destination(route, &context.hold) else {
            return Ok(Sent::Missing(Missing::NoNode));
        };
        let began = destination.ladder.map(|_| Instant::now());
        if let Some(trace) = &mut context.trace {
            trace.sending(&mut self.head, &destination.address);
        }
        let forwarder = &self.handler.forwarder;
        let sent = match (site.mode, context.terms.response_header_timeout) {
            (Mode::Node, None) => forwarder.send(&mut self.head, &self.upload, &destination).await,
            (Mode::Node, limit) => {
                let mut silence = Box::pin(silence(limit, &self.upload));
                tokio::select! {
                    biased;
                    sent = forwarder.send(&mut self.head, &self.upload, &destination) => sent,
                    () = &mut silence => return Err(Failure::UpstreamTimeout),
                }
            }
            (Mode::Direct, _) => {
                let (uri, cause) = (self.head.uri.clone(), context.cause());
                let client = context.client;
                let trigger = || trigger(client, self.user_agent.as_ref(), uri.path(), cause.clone());
                // It is on its way, and nobody is told to come again for an answer to that.
                let wakes = |context: &Context| context.wakes(uri.path(), self.port, self.user_agent.as_ref());
                let ask = Ask {
                    sandbox: &self.sandbox,
                    credentials: &self.credentials,
                    client: client.into(),
                    // Found out when it is to be woken.
                    wakes: false,
                    held: true,
                    patience: None,
                    trigger: &trigger,
                    doubts: self.doubts,
                    sent: true,
                };
                let sending = forwarder.send(&mut self.head, &self.upload, &destination);
                Box::pin(attend(&self.handler, ask, wakes, &self.upload, sending, route, context)).await?
            }
        };
        match sent {
            Ok(mut answer) => {
                if let Some(trace) = &mut context.trace {
                    trace.answered(answer.status().as_u16());
                }
                let disowned = site.mode == Mode::Node
                    && may_say_not_found(&answer)
                    && Box::pin(says_not_found(&mut answer, &self.sandbox, context.asks_for_head())).await;
                let brought = Brought { answer, slot, upload: self.upload.another(), look: None };
                if disowned {
                    return Ok(Sent::Missing(Missing::Disowned(Box::new(brought))));
                }
                self.upload.settle();
                Ok(Sent::Answered(brought))
            }
            Err(SendError::Dial(error)) => {
                if let Some(began) = began {
                    context.hold.spend(began.elapsed());
                }
                context.missed(error.as_str());
                Ok(Sent::Missing(Missing::Unreachable(error)))
            }
            Err(SendError::Broken(error)) => Err(Failure::Broken(error)),
            Err(SendError::BadBody) => Err(Failure::BadBody),
            Err(SendError::Switched) => Err(Failure::Switched),
            Err(SendError::BadHost) => Err(Misrouted::InvalidHost.into()),
            Err(SendError::NotHttp2) => Err(Failure::NotHttp2),
            Err(SendError::ClientLeft) => {
                // There is nobody to answer, and nothing of the sandbox's to blame: the connection's watch sees
                // it in a moment, and drops this.
                sleep(CLIENT_SEEN_GONE).await;
                Err(Failure::BadBody)
            }
        }
    }

    /// Whether this life of the sandbox is over, found out when it is asked. Nothing is woken.
    fn look(&self, route: &Route, client: IpAddr) -> Look {
        let resolver = self.handler.resolver.clone();
        let (sandbox, credentials) = (self.sandbox.clone(), self.credentials.clone());
        let generation = route.generation;
        let look = async move {
            let trigger = || trigger(client, None, "", None);
            let ask = Ask {
                sandbox: &sandbox,
                credentials: &credentials,
                client: client.into(),
                wakes: false,
                // Streams are bounded by other means, and one that is open is not held.
                held: false,
                patience: Some(Duration::ZERO),
                trigger: &trigger,
                doubts: true,
                sent: false,
            };
            resolver.report(&sandbox, generation, Finding::Unreachable);
            match resolver.resolve(&ask, &mut Hold::new(LOOK), Instant::now()).await {
                Ok(found) => found.generation != generation,
                // Nothing is known of it.
                Err(Unresolved::Unavailable | Unresolved::TooManyHeld | Unresolved::HoldTimeout) => false,
                Err(_) => true,
            }
        };
        Box::new(move || Box::pin(look))
    }

    fn destination(&self, route: &Route, hold: &Hold) -> Option<Destination> {
        let site = &self.handler.site;
        let Self { sandbox, port, .. } = self;
        let address = site.address.render(route.placement.node.as_ref(), *port, sandbox)?;
        let upgrade = self.upgrade.is_some();
        let http2 = !upgrade && site.protocol.is_http2(self.grpc);
        let (shared, ladder) = match site.mode {
            Mode::Node => (Some(Life::default()), None),
            Mode::Direct => {
                // Another life at the same address is another party: no connection is inherited. HTTP/1.1 to
                // user ports is not pooled at all; HTTP/2 without sharing would not be HTTP/2.
                let life = (http2 || port.is_envd()).then_some(Life(route.generation.0));
                let ladder = route.woken.and_then(|woken| {
                    let now = Instant::now();
                    (now < woken.at + JUST_WOKEN).then(|| Ladder { deadline: hold.deadline(now) })
                });
                (life, ladder)
            }
        };
        let again = site.mode == Mode::Node;
        // A sandbox that reads nothing blocks only itself, and not its envd, which may be its owner's last way in.
        let party = (http2 && again).then(|| {
            let envd = if port.is_envd() { "envd of " } else { "" };
            format!("{envd}{sandbox} at {address}")
        });
        Some(Destination { sandbox: sandbox.clone(), address, party, shared, again, http2, upgrade, ladder })
    }

    /// Looking again did not help: what the caller is told.
    fn told(&self, missing: Missing) -> Result<Brought, Failure> {
        match missing {
            // Byte for byte, whoever said it.
            Missing::Disowned(brought) => {
                self.upload.settle();
                Ok(*brought)
            }
            Missing::NoNode => Err(Failure::NoNode),
            Missing::Unreachable(DialError::Refused | DialError::NotItsListener)
                if self.handler.site.mode == Mode::Direct =>
            {
                Err(Failure::PortClosed(self.port))
            }
            Missing::Unreachable(error) => Err(Failure::NodeUnreachable(error)),
        }
    }
}

/// Who asks, for a wake.
fn trigger(client: IpAddr, user_agent: Option<&HeaderValue>, path: &str, cause: Option<Cause>) -> Trigger {
    let bounded = |text: &str| text.chars().take(200).collect::<String>().into_boxed_str();
    let user_agent = user_agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
    Trigger { client, user_agent: bounded(user_agent), path: bounded(path), cause }
}
