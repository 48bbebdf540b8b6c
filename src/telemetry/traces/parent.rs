//! W3C Trace Context: whose trace a request belongs to, and what its sandbox is told of it.

use std::str::FromStr as _;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// `{version}-{trace id}-{parent id}-{flags}` of version 00.
const LENGTH: usize = 55;
/// What collectors are told of a `tracestate` is no longer; the sandbox gets it as it came.
const MAX_STATE: usize = 512;

/// The caller's span; `None`: there is none, or what it says is not valid.
pub(super) fn read(headers: &HeaderMap) -> Option<SpanContext> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let (only, None) = (given.next()?, given.next()) else { return None };
    let (trace, span, sampled) = parse(only.to_str().ok()?)?;
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let parent = SpanContext::new(trace, span, flags, true, state(headers));
    parent.is_valid().then_some(parent)
}

/// Puts our span in place of the caller's. Its `tracestate` goes on with its trace, and ends with it.
pub(super) fn write(headers: &mut HeaderMap, span: &SpanContext, goes_on: bool) {
    if !span.is_valid() {
        // The end of the process: no more spans are made.
        return;
    }
    let (trace, id, sampled) = (span.trace_id(), span.span_id(), u8::from(span.is_sampled()));
    if let Ok(value) = HeaderValue::try_from(format!("00-{trace}-{id}-{sampled:02x}")) {
        headers.insert(TRACEPARENT, value);
    }
    if !goes_on {
        headers.remove(TRACESTATE);
    }
}

/// Trace, span, and whether it is sampled. A version to come may have more to say behind a further `-`.
fn parse(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let (known, more) = text.split_at_checked(LENGTH)?;
    let mut fields = known.split('-');
    let mut field = |length: usize| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        fields.next().filter(|field| field.len() == length && field.bytes().all(hex))
    };
    let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let known_form = match version {
        "00" => more.is_empty(),
        "ff" => false,
        _ => more.is_empty() || more.starts_with('-'),
    };
    let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    known_form.then_some((TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?, sampled))
}

fn state(headers: &HeaderMap) -> TraceState {
    let fields: Option<Vec<&str>> = headers.get_all(TRACESTATE).iter().map(|value| value.to_str().ok()).collect();
    let joined = fields.unwrap_or_default().join(",");
    if joined.is_empty() || joined.len() > MAX_STATE {
        return TraceState::default();
    }
    TraceState::from_str(&joined).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn headers(parents: &[&str]) -> HeaderMap {
        parents.iter().map(|parent| (TRACEPARENT, HeaderValue::from_str(parent).expect("a value"))).collect()
    }

    #[test]
    fn what_is_valid_is_read() {
        for (rest, sampled) in [("01", true), ("00", false), ("03", true), ("fe", false)] {
            let parent = read(&headers(&[&format!("00-{TRACE}-b7ad6b7169203331-{rest}")])).expect("valid");
            assert_eq!((parent.trace_id().to_string().as_str(), parent.is_sampled()), (TRACE, sampled));
            assert_eq!((parent.span_id().to_string().as_str(), parent.is_remote()), ("b7ad6b7169203331", true));
        }
        for later in ["cc-…-01", "01-…-01-more", "fe-…-01-"] {
            let later = later.replace('…', &format!("{TRACE}-b7ad6b7169203331"));
            assert!(read(&headers(&[&later])).is_some(), "{later}");
        }
    }

    #[test]
    fn what_is_not_valid_is_nobody_s_trace() {
        let valid = format!("00-{TRACE}-b7ad6b7169203331-01");
        assert!(read(&headers(&[])).is_none());
        assert!(read(&headers(&[&valid, &valid])).is_none(), "two of them");
        for (what, with) in [
            (TRACE, "0AF7651916CD43DD8448EB211C80319C"),
            (TRACE, "00000000000000000000000000000000"),
            (TRACE, "+af7651916cd43dd8448eb211c80319c"),
            (TRACE, "0af7651916cd43dd8448eb211c80319"),
            ("b7ad6b7169203331", "0000000000000000"),
            ("b7ad6b7169203331", "b7ad6b716920333g"),
            ("00-", "ff-"),
            ("00-", "0-"),
            ("-01", "-1"),
            ("-01", "-01-more"),
            ("-01", "-01-"),
            ("-01", "-0101"),
            ("-01", ""),
            ("-", "_"),
            (&valid, ""),
            (&valid, "ä"),
        ] {
            let broken = valid.replacen(what, with, 1);
            let headers = [(TRACEPARENT, HeaderValue::from_bytes(broken.as_bytes()).expect("a value"))];
            assert!(read(&HeaderMap::from_iter(headers)).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_trace_takes_its_state_along_and_a_new_one_has_none() {
        let mut given = headers(&[&format!("00-{TRACE}-b7ad6b7169203331-01")]);
        for state in ["a=1, b=2", "c=3"] {
            given.append(TRACESTATE, HeaderValue::from_static(state));
        }
        let parent = read(&given).expect("valid");
        assert_eq!((parent.trace_state().get("a"), parent.trace_state().get("c")), (Some("1"), Some("3")));
        let mut goes_on = given.clone();
        write(&mut goes_on, &parent, true);
        assert_eq!(goes_on, given);
        write(&mut given, &parent, false);
        assert!(given.contains_key(TRACEPARENT) && !given.contains_key(TRACESTATE));
        write(&mut given, &SpanContext::empty_context(), false);
        assert_eq!(read(&given).expect("untouched").span_id(), parent.span_id());
    }
}
