//! The spans of one request: the whole of it, each wait for its sandbox, each sending; and the wakes that it
//! causes. Names and attributes follow OpenTelemetry's conventions for HTTP. Never a token, never a query.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use http::{
    HeaderValue, Method, Version,
    header::{HOST, USER_AGENT},
    request::Parts,
};
use opentelemetry::{
    Context, KeyValue, Value,
    trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _},
};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use tokio::time::Instant;

use super::parent;
use crate::types::{Port, SandboxId};

/// Characters of a text that a client wrote.
const MAX_TEXT: usize = 1024;

/// One request, as long as it lasts.
pub(crate) struct RequestTrace {
    maker: Maker,
    span: Span,
    /// The caller's trace goes on.
    goes_on: bool,
    /// The sending that is under way or is being answered.
    forward: Option<Span>,
    sendings: i64,
}

/// How a request ended.
pub(crate) struct Ending<'a> {
    pub(crate) request_id: &'a HeaderValue,
    pub(crate) target: Option<&'a (SandboxId, Port)>,
    /// `None`: the client left before there was an answer.
    pub(crate) status: Option<u16>,
    /// What went wrong; empty: nothing.
    pub(crate) error: &'static str,
    /// Who broke it off; empty: nobody.
    pub(crate) ended_by: &'static str,
}

/// Makes spans below one parent.
#[derive(Clone)]
struct Maker {
    tracer: SdkTracer,
    parent: Context,
    /// One look at the wall clock a request: spans of one request fit each other whatever it does meanwhile.
    clock: (SystemTime, Instant),
}

impl Maker {
    fn time(&self, at: Instant) -> SystemTime {
        let (wall, monotonic) = self.clock;
        wall + at.saturating_duration_since(monotonic)
    }

    fn span(&self, name: &'static str, kind: SpanKind, from: Instant) -> Span {
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_start_time(self.time(from));
        self.tracer.build_with_context(builder, &self.parent)
    }

    fn end(&self, span: &mut Span) {
        span.end_with_timestamp(self.time(Instant::now()));
    }
}

impl RequestTrace {
    pub(super) fn begin(tracer: &SdkTracer, head: &Parts, client: IpAddr, now: Instant) -> Self {
        let caller = parent::read(&head.headers);
        let goes_on = caller.is_some();
        let above = caller.map_or_else(Context::new, |caller| Context::new().with_remote_span_context(caller));
        let wall = SystemTime::now();
        let known = known(&head.method);
        let name = known.map_or("HTTP".into(), |method| format!("HTTP {method}"));
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_start_time(wall);
        let mut span = tracer.build_with_context(builder, &above);
        if span.is_recording() {
            describe(&mut span, head, client);
        }
        let parent = Context::new().with_remote_span_context(span.span_context().clone());
        let maker = Maker { tracer: tracer.clone(), parent, clock: (wall, now) };
        Self { maker, span, goes_on, forward: None, sendings: 0 }
    }

    /// It was held for so long.
    pub(crate) fn held(&self, from: Instant, took: Duration, for_wake: bool) {
        let mut span = self.maker.span("hold", SpanKind::Internal, from);
        span.set_attribute(KeyValue::new("client_proxy.hold.for", if for_wake { "wake" } else { "lookup" }));
        span.end_with_timestamp(self.maker.time(from + took));
    }

    /// It is sent to this address; whoever gets it is told whose trace it is.
    pub(crate) fn sending(&mut self, head: &mut Parts, address: &str) {
        let mut span = self.maker.span("forward", SpanKind::Client, Instant::now());
        parent::write(&mut head.headers, span.span_context(), self.goes_on);
        if span.is_recording() {
            method(&mut span, &head.method);
            server(&mut span, address);
            if self.sendings > 0 {
                span.set_attribute(KeyValue::new("http.request.resend_count", self.sendings));
            }
        }
        self.sendings += 1;
        self.forward = Some(span);
    }

    /// An answer began.
    pub(crate) fn answered(&mut self, status: u16) {
        if let Some(span) = &mut self.forward {
            answer(span, status, 400);
        }
    }

    /// The place did not have the sandbox.
    pub(crate) fn missed(&mut self, why: &'static str) {
        if let Some(mut span) = self.forward.take() {
            fault(&mut span, why);
            self.maker.end(&mut span);
        }
    }

    /// What a wake of this request's is told.
    pub(crate) fn cause(&self) -> Cause {
        Cause(self.maker.clone())
    }

    /// It is over.
    pub(crate) fn end(&mut self, ending: &Ending<'_>) {
        if let Some(mut span) = self.forward.take() {
            if !ending.error.is_empty() {
                fault(&mut span, ending.error);
            }
            self.maker.end(&mut span);
        }
        let span = &mut self.span;
        if span.is_recording() {
            span.set_attribute(text("client_proxy.request.id", ending.request_id.to_str().unwrap_or_default()));
            if let Some((sandbox, port)) = ending.target {
                whose(span, sandbox, *port);
            }
            if !ending.ended_by.is_empty() {
                span.set_attribute(KeyValue::new("client_proxy.ended_by", ending.ended_by));
            }
            if let Some(status) = ending.status {
                answer(span, status, 500);
            }
            if !ending.error.is_empty() {
                span.set_attribute(KeyValue::new("error.type", ending.error));
            }
            if ending.ended_by == "sandbox" {
                // It broke off, whatever its head had promised.
                span.set_status(Status::error(""));
            }
        }
        self.maker.end(span);
    }
}

/// The request that caused a wake, as the wake knows it.
#[derive(Clone)]
pub(crate) struct Cause(Maker);

impl std::fmt::Debug for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cause")
    }
}

impl Cause {
    /// One call to wake, from now on.
    pub(crate) fn wake(&self, sandbox: &SandboxId, port: Port) -> WakeSpan {
        let mut span = self.0.span("wake", SpanKind::Client, Instant::now());
        whose(&mut span, sandbox, port);
        WakeSpan { maker: self.0.clone(), span }
    }
}

/// One call to wake.
pub(crate) struct WakeSpan {
    maker: Maker,
    span: Span,
}

impl WakeSpan {
    /// It ended so.
    pub(crate) fn end(mut self, outcome: &'static str, well: bool) {
        self.span.set_attribute(KeyValue::new("client_proxy.wake.outcome", outcome));
        if !well {
            fault(&mut self.span, outcome);
        }
        self.maker.end(&mut self.span);
    }
}

/// What the head of a request tells.
fn describe(span: &mut Span, head: &Parts, client: IpAddr) {
    method(span, &head.method);
    span.set_attribute(text("url.path", head.uri.path()));
    span.set_attribute(KeyValue::new("client.address", client.to_string()));
    let host = head.uri.authority().map(http::uri::Authority::as_str);
    if let Some(host) = host.or_else(|| head.headers.get(HOST)?.to_str().ok()) {
        server(span, host);
    }
    if let Some(agent) = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()) {
        span.set_attribute(text("user_agent.original", agent));
    }
    let version = match head.version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    };
    span.set_attribute(KeyValue::new("network.protocol.version", version));
}

fn method(span: &mut Span, method: &Method) {
    if let Some(known) = known(method) {
        span.set_attribute(KeyValue::new("http.request.method", known));
    } else {
        span.set_attribute(KeyValue::new("http.request.method", "_OTHER"));
        span.set_attribute(text("http.request.method_original", method.as_str()));
    }
}

/// Whatever else a client calls a method does not become a name: nobody could count by it.
fn known(method: &Method) -> Option<&'static str> {
    const ALL: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    ALL.into_iter().find(|known| *known == method.as_str())
}

/// Host and port of an authority. A user in front of the host is nobody's business.
fn server(span: &mut Span, authority: &str) {
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let (host, port) = match place.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) => (host, Some(port)),
        _ => (place, None),
    };
    span.set_attribute(text("server.address", host.trim_matches(['[', ']'])));
    if let Some(port) = port {
        span.set_attribute(KeyValue::new("server.port", i64::from(port)));
    }
}

fn whose(span: &mut Span, sandbox: &SandboxId, port: Port) {
    span.set_attribute(text("client_proxy.sandbox.id", sandbox.as_str()));
    span.set_attribute(KeyValue::new("client_proxy.sandbox.port", i64::from(port.get())));
}

/// The status of an answer; from `bad` on the span failed.
fn answer(span: &mut Span, status: u16, bad: u16) {
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
    if status >= bad {
        span.set_status(Status::error(""));
    }
}

fn fault(span: &mut Span, kind: &'static str) {
    span.set_attribute(KeyValue::new("error.type", kind));
    span.set_status(Status::error(""));
}

fn text(key: &'static str, text: &str) -> KeyValue {
    let bounded = &text[..text.floor_char_boundary(MAX_TEXT)];
    KeyValue::new(key, Value::from(bounded.to_owned()))
}
