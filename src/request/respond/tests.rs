use serde_json::Value;

use super::*;
use crate::{route::Misrouted, sandbox::Unresolved, types::Reason};

const USUAL: Duration = Duration::from_secs(8);

fn told(failure: &Failure, caller: Option<&Caller>) -> (http::response::Parts, Bytes) {
    let target = (SandboxId::new("abc").expect("an id"), Port::ENVD);
    let request_id = HeaderValue::from_static("rid");
    let facts = Facts { target: Some(&target), request_id: &request_id, caller, usual_wake: USUAL };
    respond(failure, facts).into_parts()
}

fn answer(failure: &Failure) -> (http::response::Parts, Value) {
    let (parts, body) = told(failure, None);
    (parts, serde_json::from_slice(&body).expect("JSON"))
}

fn reads(medium: Medium) -> Caller {
    let host = (medium == Medium::Html).then(|| "8000-abc.<b>.test".to_owned());
    let path = Some(PathAndQuery::from_static("//other.test/b?x='1'&y"));
    Caller { medium, origin: None, preflight: None, host, path }
}

fn seconds(parts: &http::response::Parts) -> u64 {
    parts.headers["retry-after"].to_str().expect("text").parse().expect("a number")
}

fn all_failures() -> Vec<Failure> {
    let second = Duration::from_secs(1);
    vec![
        Unresolved::Gone(Reason::Unknown).into(),
        Unresolved::Gone(Reason::NotWoken).into(),
        Unresolved::Denied(crate::types::Denial::Denied).into(),
        Unresolved::Exhausted("<b>20</b> of 20 sandboxes run: 100 %".into()).into(),
        Unresolved::Unavailable.into(),
        Unresolved::TooManyHeld.into(),
        Unresolved::Suspended(second).into(),
        Unresolved::TooManyWakes(second).into(),
        Unresolved::Waking.into(),
        Unresolved::StillTransitioning.into(),
        Unresolved::HoldTimeout.into(),
        Unresolved::Restless.into(),
        Failure::PortClosed(Port::ENVD),
        Failure::NoNode,
        Failure::UpstreamTimeout,
        Failure::Draining,
        Misrouted::InvalidHost.into(),
    ]
}

#[test]
fn connect_calls_read_a_word_for_a_code_and_their_streams_always_begin_well() {
    for failure in all_failures() {
        let meaning = failure.code().meaning();
        let (parts, body) = told(&failure, Some(&reads(Medium::Connect)));
        assert_eq!(
            (parts.status.as_u16(), &parts.headers["content-type"]),
            (meaning.status, &"application/json".parse().expect("a value"))
        );
        let error: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(error["code"], meaning.connect);
        assert_eq!((&error["message"], &error["error"]), (&failure.message().into(), &meaning.word.into()));
        let stream = HeaderValue::from_static("application/connect+proto");
        let (parts, body) = told(&failure, Some(&reads(Medium::ConnectStream(stream.clone()))));
        assert_eq!((parts.status.as_u16(), &parts.headers["content-type"]), (200, &stream));
        assert!(parts.headers.contains_key("proxy-status"));
        let (head, end) = body.split_at(5);
        assert_eq!(
            (head[0], head[1..].to_vec()),
            (2, u32::try_from(end.len()).expect("a length").to_be_bytes().to_vec())
        );
        let end: Value = serde_json::from_slice(end).expect("JSON");
        assert_eq!(end["error"]["code"], meaning.connect);
        assert_eq!(end["error"]["message"], failure.message());
    }
}

#[test]
fn grpc_calls_read_trailers_only() {
    for failure in all_failures() {
        let content_type = HeaderValue::from_static("application/grpc+proto");
        let (parts, body) = told(&failure, Some(&reads(Medium::Grpc(content_type.clone()))));
        assert_eq!((parts.status.as_u16(), &parts.headers["content-type"]), (200, &content_type));
        assert_eq!(parts.headers["grpc-status"], failure.code().meaning().grpc.to_string());
        let message = parts.headers["grpc-message"].to_str().expect("ASCII");
        let message = percent_encoding::percent_decode_str(message).decode_utf8().expect("UTF-8");
        assert_eq!(message, failure.message());
        assert!(body.is_empty());
    }
}

#[test]
fn old_tools_read_words() {
    let failure = Unresolved::Gone(Reason::AutoResumeOff).into();
    let (parts, body) = told(&failure, Some(&reads(Medium::Text)));
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    assert_eq!((parts.status.as_u16(), &parts.headers["content-type"]), (502, &text));
    assert!(body.starts_with(b"sandbox_not_found: The sandbox was not found") && body.ends_with(b"rid\n"));
}

#[test]
fn a_page_says_what_happened_and_needs_nothing_else() {
    for failure in all_failures() {
        let (parts, body) = told(&failure, Some(&reads(Medium::Html)));
        assert_eq!(parts.status.as_u16(), failure.code().meaning().status);
        let page = std::str::from_utf8(&body).expect("UTF-8");
        assert!(!page.contains("{{") && !page.contains("<b>"), "{page}");
        assert!(page.contains("8000-abc.&lt;b&gt;.test") && page.contains("<dd>rid</dd>"));
        for foreign in ["http:", "https:", "src=", "href=", "url(", "<script", "@import"] {
            // The empty icon is in the page.
            assert!(!page.replace("href=\"data:,\"", "").contains(foreign), "{foreign}");
        }
        let policy = parts.headers["content-security-policy"].to_str().expect("ASCII");
        assert!(policy.starts_with("default-src 'none'"));
        let waking = matches!(failure, Failure::Unresolved(Unresolved::Waking));
        assert_eq!(page.contains("http-equiv=\"refresh\""), waking);
        // Of this host, whatever its path begins with.
        assert_eq!(page.contains(";url=/.//other.test/b?x=&#39;1&#39;&amp;y\">"), waking, "{page}");
    }
    let page =
        |failure: Failure| String::from_utf8(told(&failure, Some(&reads(Medium::Html))).1.into()).expect("UTF-8");
    assert!(page(Unresolved::Exhausted("<b>20</b>".into()).into()).contains("&lt;b&gt;20&lt;/b&gt;"));
    // Words that SDKs look for say nothing to people.
    assert!(
        page(Unresolved::Gone(Reason::Expired).into()).contains("<p>Its snapshot has expired. Create a new one.</p>")
    );
    assert!(page(Failure::PortClosed(Port::ENVD)).contains("<p>Start a server on port 49983 that "));
}

#[test]
fn a_page_of_another_site_may_read_an_error() {
    let origin = HeaderValue::from_static("https://app.example");
    let caller = Caller { origin: Some(origin.clone()), ..reads(Medium::Json) };
    let (parts, _) = told(&Unresolved::Unavailable.into(), Some(&caller));
    assert_eq!(parts.headers["access-control-allow-origin"], origin);
    let exposed = parts.headers["access-control-expose-headers"].to_str().expect("ASCII");
    assert!(exposed.contains("Proxy-Status") && exposed.contains("Retry-After"));
    assert_eq!(parts.headers["vary"], "Origin");
    let (parts, _) = told(&Unresolved::Unavailable.into(), None);
    assert!(!parts.headers.keys().any(|name| name.as_str().starts_with("access-control")));
}

#[test]
fn a_later_try_is_asked_for_when_it_may_succeed_and_not_of_all_at_once() {
    for (failure, least, most) in [
        (Unresolved::Unavailable, 1, 2),
        (Unresolved::HoldTimeout, 8, 12),
        (Unresolved::Waking, 8, 12),
        (Unresolved::TooManyHeld, 8, 12),
        (Unresolved::TooManyWakes(Duration::from_millis(30_500)), 31, 47),
        (Unresolved::Suspended(Duration::from_hours(5)), 300, 450),
    ] {
        let failure = failure.into();
        let times: Vec<u64> = (0..200).map(|_| seconds(&told(&failure, None).0)).collect();
        assert!(times.iter().all(|time| (least..=most).contains(time)), "{failure}: {times:?}");
        assert!(times.iter().any(|time| *time != times[0]), "{failure}: all at once");
    }
}

#[test]
fn words_are_unique_and_statuses_fit_the_sdks() {
    let mut words: Vec<_> = Code::ALL.iter().map(|code| code.meaning().word).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Code::ALL.len());
    // SDKs read 502 as "the sandbox is dead": only these may say so.
    let dead: Vec<_> = Code::ALL.iter().filter(|code| code.meaning().status == 502).collect();
    assert_eq!(dead, [&Code::SandboxNotFound, &Code::PortClosed, &Code::UpstreamFailed]);
}

#[test]
fn the_words_that_sdks_look_for_are_there() {
    for reason in Reason::ALL {
        let (_, body) = answer(&Unresolved::Gone(reason).into());
        assert!(body["message"].as_str().expect("a message").contains("was not found"));
        assert_eq!(body["reason"], reason.as_str());
    }
    let (_, body) = answer(&Failure::PortClosed(Port::ENVD));
    assert!(body["message"].as_str().expect("a message").contains("port is not open"));
    assert_eq!(body["port"], 49983);
}

#[test]
fn a_sandbox_that_lives_elsewhere_is_not_dead_and_the_words_are_true() {
    for (failure, words) in [
        (Failure::Moved, "may have been processed"),
        (Unresolved::Restless.into(), "went to sleep again"),
        (Failure::NoNode, "cannot be reached"),
    ] {
        let (parts, body) = answer(&failure);
        assert!(parts.status == 503 && (1..=12).contains(&seconds(&parts)));
        assert_eq!((&body["error"], &body["retryable"]), (&"node_unavailable".into(), &true.into()));
        assert!(body["message"].as_str().expect("a message").contains(words), "{body}");
    }
}

#[test]
fn an_answer_tells_codes_the_same_way_everywhere() {
    let (parts, body) = answer(&Unresolved::Gone(Reason::AutoResumeOff).into());
    assert_eq!(parts.status, 502);
    assert_eq!(
        parts.headers["proxy-status"],
        "client-proxy; error=destination_not_found; details=\"sandbox_not_found; reason=auto_resume_off\""
    );
    assert_eq!((&body["code"], &body["error"]), (&502.into(), &"sandbox_not_found".into()));
    assert_eq!((&body["sandboxId"], &body["requestId"]), (&"abc".into(), &"rid".into()));
    assert_eq!(
        (&parts.headers["cache-control"], body["retryable"].as_bool()),
        (&HeaderValue::from_static("no-store"), Some(false))
    );
    assert!(!parts.headers.contains_key("retry-after"));
    let (parts, body) = answer(&Unresolved::Unavailable.into());
    assert!(parts.status == 503 && (1..=2).contains(&seconds(&parts)));
    assert_eq!(body["retryable"], true);
    let (parts, _) = answer(&Failure::Draining);
    assert_eq!(parts.headers["connection"], "close");
    let (parts, body) = answer(&Failure::BadBody);
    assert_eq!((parts.status.as_u16(), &parts.headers["connection"]), (400, &HeaderValue::from_static("close")));
    assert_eq!((body["error"].as_str(), body["retryable"].as_bool()), (Some("invalid_body"), Some(false)));
    let (parts, body) = answer(&Misrouted::ConnectMethod.into());
    assert_eq!((parts.status.as_u16(), body["error"].as_str()), (405, Some("method_not_allowed")));
    assert!(parts.headers.contains_key("allow"));
}
