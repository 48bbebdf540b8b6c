//! The facts of one request, gathered on its way and written down when it is over: on drop, so that a
//! request whose client left is counted like any other.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, uri::PathAndQuery};
use tokio::time::Instant;

use super::{Site, Terms, caller::Caller, respond::Facts, wish::Wish};
use crate::{
    config::AccessLog,
    forward::headers::{Marks, REQUEST_ID},
    sandbox::Hold,
    telemetry::{
        metrics::Origin,
        traces::{Cause, Ending, RequestTrace},
    },
    types::{Port, SandboxId, Woken},
};

/// One request. Its end is when this is dropped.
pub(crate) struct Context {
    site: Arc<Site>,
    started: Instant,
    pub(crate) request_id: HeaderValue,
    pub(crate) client: IpAddr,
    method: Method,
    path: Option<PathAndQuery>,
    pub(crate) target: Option<(SandboxId, Port)>,
    /// An answer of our own ends its connection: what comes next on it may be no request.
    pub(crate) closes: bool,
    pub(crate) terms: Terms,
    /// It wakes nothing.
    never: bool,
    /// It does not wait for a wake.
    at_once: bool,
    pub(crate) caller: Option<Box<Caller>>,
    pub(crate) hold: Hold,
    pub(crate) woken: Option<Woken>,
    pub(crate) trace: Option<Box<RequestTrace>>,
    answer: Option<Answer>,
    bytes: u64,
    ended: Ended,
}

struct Answer {
    status: u16,
    origin: Origin,
    error: &'static str,
    after: Duration,
}

/// Who ended the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Not over when it was dropped: the client left.
    ByClient,
    /// The whole answer was handed over.
    Well,
    /// The sandbox's answer broke off.
    BySandbox,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Self::Well => "",
            Self::ByClient => "client",
            Self::BySandbox => "sandbox",
        }
    }
}

/// What nginx writes for a client that left before an answer.
const CLIENT_CLOSED: u16 = 499;
const MAX_REQUEST_ID: usize = 128;
/// How much of a method the access line tells, which is a token, and ASCII (RFC 9110 §9.1).
const MAX_METHOD: usize = 32;
/// How much of a path the access line tells.
const MAX_PATH: usize = 1024;
/// A lookup of a millisecond is no hold that a client would care for.
const WORTH_TELLING: Duration = Duration::from_millis(1);

impl Context {
    pub(crate) fn open(site: &Arc<Site>, head: &http::request::Parts, marks: Marks, client: IpAddr) -> Self {
        let started = Instant::now();
        let mut terms = **site.terms.load();
        let Wish { never, at_once, longest } = Wish::of(&head.headers, marks);
        terms.hold_timeout = longest.map_or(terms.hold_timeout, |longest| longest.min(terms.hold_timeout));
        Self {
            started,
            request_id: given_id(&head.headers, marks).unwrap_or_else(new_id),
            client,
            method: head.method.clone(),
            path: (terms.access != AccessLog::Off).then(|| head.uri.path_and_query().cloned()).flatten(),
            target: None,
            closes: false,
            terms,
            never,
            at_once,
            caller: Caller::of(head, marks),
            hold: Hold::new(terms.hold_timeout),
            woken: None,
            trace: site.traces.as_ref().map(|traces| Box::new(traces.request(head, client, started))),
            answer: None,
            bytes: 0,
            ended: Ended::ByClient,
            site: site.clone(),
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn asks_for_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// How long it waits for a wake before it is told that one is under way; `None`: as long as it may.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.at_once {
            return Some(Duration::ZERO);
        }
        let navigates = self.caller.as_ref().is_some_and(|caller| caller.navigates(&self.method));
        if navigates { self.site.wake.load().page_after } else { None }
    }

    /// Whether it may cause a wake, as far as the operator's rules and its own wish go.
    pub(crate) fn wakes(&self, path: &str, port: Port, user_agent: Option<&HeaderValue>) -> bool {
        let rules = self.site.wake.load();
        let preflight = self.caller.as_ref().is_some_and(|caller| caller.preflight.is_some());
        let quiet = self.never || (preflight && rules.answer_preflight);
        !quiet && rules.admit(&self.method, port, path, user_agent)
    }

    /// What an answer of our own depends on. `usual_wake`: how long one takes.
    pub(crate) fn facts(&self, usual_wake: Duration) -> Facts<'_> {
        let (target, caller) = (self.target.as_ref(), self.caller.as_deref());
        Facts { target, request_id: &self.request_id, caller, usual_wake }
    }

    /// The head of the answer is known.
    pub(crate) fn answered(&mut self, status: StatusCode, origin: Origin, error: &'static str) {
        let after = self.started.elapsed();
        self.site.metrics.time_to_first_byte.record(after);
        self.answer = Some(Answer { status: status.as_u16(), origin, error, after });
    }

    /// `Server-Timing` of a request that was held: for how long, and how long its wake took.
    pub(crate) fn server_timing(&self) -> Option<HeaderValue> {
        let held = self.hold.held();
        if self.woken.is_none() && held < WORTH_TELLING {
            return None;
        }
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let mut text = format!("hold;dur={:.1}", milliseconds(held));
        if let Some(woken) = self.woken {
            use std::fmt::Write as _;
            let _ = write!(text, ", resume;dur={:.1}", milliseconds(woken.took));
        }
        HeaderValue::try_from(text).ok()
    }

    /// It waited, and does so no longer; before that it had been held for `before` in all.
    pub(crate) fn waited(&mut self, before: Duration) {
        self.hold.end();
        let took = self.hold.held().saturating_sub(before);
        if let (Some(trace), Some((from, for_wake))) = (&self.trace, self.hold.last_wait())
            && !took.is_zero()
        {
            trace.held(from, took, for_wake);
        }
    }

    /// What a wake of this request's is told to belong to.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.trace.as_ref().map(|trace| trace.cause())
    }

    /// The place that it was sent to does not have the sandbox.
    pub(crate) fn missed(&mut self, why: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.missed(why);
        }
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub(crate) fn finished(&mut self) {
        self.ended = Ended::Well;
    }

    pub(crate) fn cut_by_sandbox(&mut self) {
        self.ended = Ended::BySandbox;
    }

    fn write(&self, status: u16, origin: Origin, error: &'static str, total: Duration) {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (sandbox, port) = match &self.target {
            Some((sandbox, port)) => (sandbox.as_str(), port.get()),
            None => ("", 0),
        };
        tracing::info!(
            target: "access",
            request_id = self.request_id.to_str().unwrap_or_default(),
            client = %self.client,
            sandbox,
            port,
            method = &self.method.as_str()[..self.method.as_str().len().min(MAX_METHOD)],
            path = self.path.as_ref().map(PathAndQuery::path).map_or("", |path| &path[..path.floor_char_boundary(MAX_PATH)]),
            status,
            origin = origin.as_str(),
            error,
            bytes = self.bytes,
            held_ms = milliseconds(self.hold.held()),
            head_ms = milliseconds(self.answer.as_ref().map_or(total, |answer| answer.after)),
            total_ms = milliseconds(total),
            ended_by = self.ended.as_str(),
            "request"
        );
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let total = self.started.elapsed();
        let (status, origin, error) = match &self.answer {
            Some(answer) => (answer.status, answer.origin, answer.error),
            None => (CLIENT_CLOSED, Origin::Proxy, "client_closed"),
        };
        let metrics = &self.site.metrics;
        metrics.request(origin, status, error);
        metrics.request_duration.record(total);
        let held = self.hold.held();
        if !held.is_zero() {
            metrics.hold_duration.record(held);
        }
        let wanted = match self.terms.access {
            AccessLog::All => true,
            // A client that leaves is not an error.
            AccessLog::Errors => self.ended == Ended::BySandbox || (!error.is_empty() && status != CLIENT_CLOSED),
            AccessLog::Off => false,
        };
        if wanted {
            self.write(status, origin, error, total);
        }
        if let Some(mut trace) = self.trace.take() {
            if let Some((from, for_wake)) = self.hold.last_wait().filter(|_| self.hold.is_waiting()) {
                trace.held(from, from.elapsed(), for_wake);
            }
            trace.end(&Ending {
                request_id: &self.request_id,
                target: self.target.as_ref(),
                status: self.answer.as_ref().map(|answer| answer.status),
                error: if self.ended == Ended::BySandbox { "cut_by_sandbox" } else { error },
                ended_by: self.ended.as_str(),
            });
        }
    }
}

/// The client's own id, if it is one line of printable ASCII.
fn given_id(headers: &HeaderMap, marks: Marks) -> Option<HeaderValue> {
    let printable = |value: &&HeaderValue| {
        (1..=MAX_REQUEST_ID).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    // Most requests bring none.
    marks.has_request_id().then(|| headers.get(REQUEST_ID).filter(printable).cloned()).flatten()
}

/// 128 random bits.
fn new_id() -> HeaderValue {
    let (random, mut id) = (fastrand::u128(..).to_be_bytes(), [0; 32]);
    // Formatting costs more than making it.
    for (digits, byte) in id.chunks_exact_mut(2).zip(random) {
        digits.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
    HeaderValue::from_bytes(&id).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

const HEX: &[u8; 16] = b"0123456789abcdef";
