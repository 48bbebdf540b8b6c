//! For people: one page for every failure, that says what happened and what to do, and needs nothing but itself.

use std::{borrow::Cow, fmt::Write as _};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY},
};

use super::Own;
use crate::{
    request::{code::Code, failure::Failure},
    sandbox::Unresolved,
    types::Reason,
};

const TEMPLATE: &str = include_str!("page.html");
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// Soon enough for somebody who looks at it, and seldom enough for a hundred who do.
const REFRESH: std::ops::RangeInclusive<u64> = 2..=10;

/// The page. `host`, `path`: what the browser asked for, as it stands in its address bar.
pub(super) fn of(own: &Own<'_>, host: &str, path: &str) -> Bytes {
    let (title, sign) = headline(own.failure);
    let refresh = match own.failure.code() {
        Code::Waking => own.retry_after.map_or(*REFRESH.start(), |after| after.clamp(*REFRESH.start(), *REFRESH.end())),
        _ => 0,
    };
    let mut page = String::with_capacity(TEMPLATE.len() + 1024);
    let mut rest = TEMPLATE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let Some((name, after)) = after.split_once("}}") else { break };
        rest = after;
        match name {
            "title" => page.push_str(title),
            "sign" => page.push_str(sign),
            "message" if refresh > 0 => page.push_str("It was asleep, and will be there in a moment."),
            "message" => page.push_str(&escaped(&for_people(&own.message))),
            "refresh" if refresh > 0 => {
                // With the address: without it a browser whose address ends in a fragment loads nothing. And with a dot
                // before it: two slashes would begin another host's.
                let path = escaped(path);
                let _ = writeln!(page, "<meta http-equiv=\"refresh\" content=\"{refresh};url=/.{path}\">");
            }
            "facts" => facts(&mut page, own, host),
            "waiting" if refresh > 0 => {
                let _ = writeln!(page, "<p class=\"wait\" role=\"status\">This page loads again by itself.</p>");
            }
            _ => {}
        }
    }
    page.push_str(rest);
    page.into()
}

/// What a browser is not to do with it.
pub(super) fn guard(headers: &mut HeaderMap) {
    // An icon of its own, if only an empty one: a browser would ask the sandbox for one, which wakes it.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(ROBOTS, HeaderValue::from_static("noindex"));
}

fn facts(page: &mut String, own: &Own<'_>, host: &str) {
    let mut fact = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
        }
    };
    if let Some((sandbox, port)) = own.target {
        fact("Sandbox", sandbox.as_str());
        fact("Port", &port.to_string());
    }
    fact("Address", host);
    let code = match own.failure.reason() {
        Some(reason) => format!("{} ({reason})", own.meaning.word),
        None => own.meaning.word.to_owned(),
    };
    fact("Error", &format!("{} {code}", own.meaning.status));
    fact("Request id", own.request_id);
}

/// The words without those that only SDKs look for: a headline says them better.
fn for_people(message: &str) -> Cow<'_, str> {
    const KNOWN: [&str; 2] = ["The sandbox was not found: ", "The sandbox is running but port is not open. "];
    let Some(rest) = KNOWN.iter().find_map(|words| message.strip_prefix(words)) else { return message.into() };
    let mut letters = rest.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect()).into()
}

/// What it is in two words, and a sign for it.
fn headline(failure: &Failure) -> (&'static str, &'static str) {
    if let Failure::Unresolved(Unresolved::Gone(Reason::AutoResumeOff | Reason::FilesystemOnly | Reason::NotWoken)) =
        failure
    {
        return ("This sandbox is asleep", "☾");
    }
    match failure.code() {
        Code::SandboxNotFound => ("Sandbox not found", "?"),
        Code::AccessDenied | Code::TrafficTokenMissing | Code::TrafficTokenInvalid => ("Access denied", "✕"),
        Code::PortClosed => ("Nothing listens on this port", "○"),
        Code::TooManyHeld | Code::TooManyWakes | Code::TeamLimit | Code::TooManyConnections => ("Limit reached", "≡"),
        // As text: phones have a coloured picture for it, too.
        Code::Waking => ("The sandbox is waking up", "☀\u{fe0e}"),
        Code::HoldTimeout
        | Code::StillTransitioning
        | Code::NodeUnavailable
        | Code::WakesSuspended
        | Code::ControlPlaneUnavailable
        | Code::Draining => ("Not available right now", "…"),
        Code::UpstreamFailed | Code::UpstreamTimeout => ("The sandbox did not answer", "!"),
        Code::InvalidHost
        | Code::MissingHeader
        | Code::InvalidSandboxId
        | Code::InvalidPort
        | Code::InvalidBody
        | Code::UnknownDomain
        | Code::MethodNotAllowed
        | Code::ProtocolNotSupported
        | Code::CodingNotSupported
        | Code::InternalRoute => ("This address leads nowhere", "?"),
    }
}

/// Text that is only text in HTML, also in a quoted attribute.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped.into()
}
