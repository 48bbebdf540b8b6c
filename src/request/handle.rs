//! The story of one request: who is meant, where it runs (waking it if need be), there and back.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, USER_AGENT},
    request::Parts,
};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{
    Site,
    context::Context,
    errand::{Brought, Errand},
    failure::{Blame, Failure},
    internal::is_internal,
    reply::Reply,
    respond::{preflight, respond},
    serving::Serving,
};
use crate::{
    config::Mode,
    forward::{
        Forwarder, Upload,
        headers::{self, ACCESS_TOKEN, Disagreement, Marks, Passage, Peer, TRAFFIC_TOKEN, Upgrade},
    },
    route::{Target, route},
    sandbox::{
        Resolver,
        ports::{Catalog, Resumer},
    },
    telemetry::{Quiet, metrics::Origin},
    types::{Credentials, Secret},
};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Handles the requests of one worker.
pub(crate) struct Handler<C, R> {
    pub(crate) site: Arc<Site>,
    pub(crate) resolver: Arc<Resolver<C, R>>,
    pub(crate) forwarder: Rc<Forwarder>,
}

impl<C: Catalog, R: Resumer> Handler<C, R> {
    /// Answers one request. `peer` is the other end of its connection.
    pub(crate) fn handle(self: &Rc<Self>, request: Request<Incoming>, peer: &Peer) -> Serving {
        let (head, body) = request.into_parts();
        let marks = Marks::of(&head.headers);
        let client = headers::client_address(&head.headers, peer, |ip| self.site.trusts(ip));
        let mut context = Box::new(Context::open(&self.site, &head, marks, client));
        // Its end is told only there; or its client may leave it out (RFC 9110 §10.1.1).
        context.closes = body.size_hint().exact().is_none()
            || !body.is_end_stream() && head.headers.contains_key(EXPECT) && head.version < Version::HTTP_2;
        let upload = Upload::new(body, head.version);
        let errand = match self.errand(head, upload.another(), marks, peer, &mut context) {
            Ok(errand) => errand,
            Err(failure) => {
                context.closes = upload.swallow(context.closes);
                return Serving::over(self.answer(&failure, context));
            }
        };
        match self.resolver.route(&errand.sandbox, context.started()) {
            Some(route) => Serving::go(errand, route, context),
            None => Serving::park(errand, context),
        }
    }

    /// What is to be done; or why not.
    fn errand(
        self: &Rc<Self>,
        mut head: Parts,
        upload: Upload<Incoming>,
        marks: Marks,
        peer: &Peer,
        context: &mut Context,
    ) -> Result<Errand<C, R>, Failure> {
        // Before the head is put right: the client's Connection may nominate these.
        let user_agent = marks.has_user_agent().then(|| user_agent(&head.headers)).flatten();
        headers::one_coding(&head.headers, marks)?;
        let upgrade = Upgrade::wanted(&mut head, marks, !upload.is_empty())?.map(Box::new);
        let (target, credentials) = self.meant(&mut head, marks, peer, upgrade.as_deref(), context)?;
        let (Target { sandbox, port, .. }, grpc) = (target, marks.is_grpc());
        let handler = self.clone();
        Ok(Errand { handler, sandbox, port, credentials, user_agent, head, upload, upgrade, grpc, doubts: false })
    }

    /// Who is meant; and the head as it goes there.
    fn meant(
        &self,
        head: &mut Parts,
        marks: Marks,
        peer: &Peer,
        upgrade: Option<&Upgrade>,
        context: &mut Context,
    ) -> Result<(Target, Credentials), Failure> {
        let target = route(head, &self.site.rules)?;
        context.target = Some((target.sandbox.clone(), target.port));
        let direct = self.site.mode == Mode::Direct;
        if direct && target.port.is_envd() && is_internal(head.uri.path()) {
            return Err(Failure::InternalRoute);
        }
        let credentials = credentials(&head.headers, marks, &target);
        let (host, original_host) = self.upstream_host(&target);
        let (request_id, strip_traffic_token) = (&context.request_id, direct);
        let passage = Passage { marks, host, original_host, peer, request_id, strip_traffic_token, upgrade };
        headers::outbound(head, passage);
        Ok((target, credentials))
    }

    /// The Host to send, and the original one where it is another.
    fn upstream_host(&self, target: &Target) -> (HeaderValue, Option<HeaderValue>) {
        match &target.shared {
            Some(own) if self.site.rewrite_shared_host => (own.clone(), Some(target.host.clone())),
            _ => (target.host.clone(), None),
        }
    }

    pub(super) fn pass_on(
        &self,
        brought: Brought,
        upgrade: Option<&Upgrade>,
        mut context: Box<Context>,
    ) -> Response<Reply> {
        let (mut head, body) = brought.answer.into_parts();
        let switched = match upgrade.map(|upgrade| upgrade.agreed(&head)) {
            None | Some(Ok(None)) => None,
            Some(Ok(switched)) => switched,
            Some(Err(Disagreement)) => {
                context.closes = brought.upload.swallow(context.closes);
                return self.answer(&Failure::Switched, context);
            }
        };
        headers::inbound(&mut head);
        let is_switched = switched.is_some();
        if let Some(switched) = switched {
            switched.tell(&mut head);
        }
        context.answered(head.status, Origin::Sandbox, "");
        if let Some(timing) = context.server_timing() {
            head.headers.append(SERVER_TIMING, timing);
        }
        if brought.upload.end_is_doubtful() {
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let reply = match brought.look {
            Some(look) if head.status == StatusCode::OK => {
                Reply::stream(body, look, brought.upload, context, brought.slot)
            }
            _ if is_switched => Reply::switched(body, brought.upload, context, brought.slot),
            _ => Reply::sandbox(body, brought.upload, context, brought.slot),
        };
        Response::from_parts(head, reply)
    }

    pub(super) fn answer(&self, failure: &Failure, mut context: Box<Context>) -> Response<Reply> {
        let answer = self.preflight(failure, &context);
        let error = if answer.is_some() { "" } else { failure.code().meaning().word };
        let answer = answer.unwrap_or_else(|| {
            let answer = respond(failure, context.facts(self.resolver.usual_wake()));
            tell(failure, &context, answer.status(), &self.site.quiet);
            answer
        });
        context.answered(answer.status(), Origin::Proxy, error);
        let (timing, closes) = (context.server_timing(), context.closes);
        let answer = if context.asks_for_head() { without_body(answer) } else { answer };
        let mut answer = answer.map(|body| Reply::own(body, context));
        if closes {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(timing) = timing {
            answer.headers_mut().insert(SERVER_TIMING, timing);
        }
        answer
    }

    /// A page's browser asks whether the page may ask, and gets no further: it is told yes here, and the page the rest.
    fn preflight(&self, failure: &Failure, context: &Context) -> Option<Response<Bytes>> {
        let caller = context.caller.as_ref()?;
        let asked = caller.preflight.as_ref().filter(|_| self.site.wake.load().answer_preflight)?;
        // It knows where to ask; whatever is wrong there, the page can read only of its own request.
        let is_routed = context.target.is_some() && !matches!(failure, Failure::Misrouted(_));
        is_routed.then(|| preflight(caller.origin.as_ref(), asked, &context.request_id))
    }
}

/// What is answered to HEAD: hyper leaves the body out of HTTP/1.1 by itself, but not out of HTTP/2.
fn without_body(mut answer: Response<Bytes>) -> Response<Bytes> {
    let length = answer.body().len();
    answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    answer.map(|_| Bytes::new())
}

/// Failures are logged once, here; a client's own faults only for those who look closely.
fn tell(failure: &Failure, context: &Context, status: StatusCode, quiet: &Quiet) {
    let request_id = context.request_id.to_str().unwrap_or_default();
    let sandbox = context.target.as_ref().map(|(sandbox, _)| sandbox.as_str()).unwrap_or_default();
    let code = failure.code().meaning().word;
    match failure.blame() {
        Blame::Client => tracing::debug!(request_id, sandbox, code, %status, error = %failure, "refused"),
        Blame::Sandbox => tracing::info!(request_id, sandbox, code, %status, error = %failure, "the sandbox failed"),
        // A crowd is refused for one reason: it is told once a second, and the access lines have the rest.
        Blame::Edge => {
            if let Some(left_out) = quiet.may_say(code, Instant::now()) {
                tracing::warn!(request_id, sandbox, code, %status, error = %failure, left_out, "refused by this proxy");
            }
        }
        // The call that failed has its own line, one for all who waited: an outage must not write one for each request.
        Blame::ControlPlane => {
            tracing::debug!(request_id, sandbox, code, %status, error = %failure, "the control plane failed");
        }
    }
}

/// Repeated, it is one list (RFC 9110 §5.3): a rule may mean any of its lines.
fn user_agent(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(USER_AGENT).iter();
    let first = lines.next()?;
    if lines.next().is_none() {
        return Some(first.clone());
    }
    let all: Vec<&[u8]> = headers.get_all(USER_AGENT).iter().map(HeaderValue::as_bytes).collect();
    HeaderValue::from_bytes(&all.join(&b", "[..])).ok()
}

fn credentials(headers: &HeaderMap, marks: Marks, target: &Target) -> Credentials {
    if !marks.has_token() {
        return Credentials { port: target.port, traffic_token: None, access_token: None };
    }
    // Repeated, it is one list (RFC 9110 §5.3), and no token: nobody gets to show several keys.
    let token = |name: HeaderName| {
        let values: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        (!values.is_empty()).then(|| Secret::new(values.join(&b", "[..])))
    };
    Credentials { port: target.port, traffic_token: token(TRAFFIC_TOKEN), access_token: token(ACCESS_TOKEN) }
}
