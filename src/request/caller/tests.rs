use http::Request;

use super::*;

const BROWSER: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn caller(version: Version, method: &str, fields: &str) -> Option<Box<Caller>> {
    caller_at("/", version, method, fields)
}

fn caller_at(path: &str, version: Version, method: &str, fields: &str) -> Option<Box<Caller>> {
    let mut request = Request::builder().version(version).method(method).uri(path);
    for field in fields.split('|').filter(|field| !field.is_empty()) {
        let (name, value) = field.split_once(": ").expect("a field");
        request = request.header(name, value);
    }
    let (head, ()) = request.body(()).expect("a request").into_parts();
    Caller::of(&head, Marks::of(&head.headers))
}

fn medium(version: Version, method: &str, fields: &str) -> Medium {
    caller(version, method, fields).map_or(Medium::Json, |caller| caller.medium)
}

/// The table of the README, row by row.
#[test]
fn the_caller_is_answered_in_what_it_can_read() {
    let (v0, v1, v2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
    let typed = |text| HeaderValue::from_static(text);
    for (version, method, fields, want) in [
        // gRPC and gRPC-Web, whatever else they say.
        (v2, "POST", "content-type: application/grpc", Medium::Grpc(typed("application/grpc"))),
        (v2, "POST", "content-type: application/grpc+proto", Medium::Grpc(typed("application/grpc+proto"))),
        (
            v1,
            "POST",
            "content-type: application/grpc-web+proto|sec-fetch-mode: cors",
            Medium::Grpc(typed("application/grpc-web+proto")),
        ),
        (v2, "POST", "content-type: application/grpcfoo", Medium::Json),
        (v2, "POST", "content-type: application/grpcfoo|connect-protocol-version: 1", Medium::Connect),
        // Connect.
        (
            v1,
            "POST",
            "content-type: application/connect+json|connect-protocol-version: 1",
            Medium::ConnectStream(typed("application/connect+json")),
        ),
        (
            v1,
            "POST",
            "content-type: application/connect+proto|accept: text/html",
            Medium::ConnectStream(typed("application/connect+proto")),
        ),
        (v1, "POST", "content-type: application/json|connect-protocol-version: 1", Medium::Connect),
        (v1, "POST", "content-type: application/proto|connect-protocol-version: 1", Medium::Connect),
        (v1, "POST", "content-type: application/json", Medium::Json),
        (v1, "GET", "connect-protocol-version: 1", Medium::Json),
        // Upgrades.
        (v1, "GET", "connection: upgrade|upgrade: websocket|sec-fetch-mode: websocket", Medium::Json),
        (v1, "GET", "connection: upgrade|upgrade: h2c, HTTP2-Settings|accept: */*", Medium::Json),
        (v1, "GET", "connection: upgrade|upgrade: h2c", Medium::Json),
        // Browsers that say what they fetch for.
        (v2, "GET", "sec-fetch-mode: navigate|accept: text/html", Medium::Html),
        (v2, "POST", "sec-fetch-mode: navigate|accept: text/html", Medium::Html),
        (v2, "GET", "sec-fetch-mode: cors|accept: text/html", Medium::Json),
        (v2, "GET", "sec-fetch-mode: no-cors|accept: */*", Medium::Json),
        (v2, "GET", "sec-fetch-mode: same-origin|accept: text/html", Medium::Json),
        // Scripts that say so themselves.
        (v2, "GET", "x-requested-with: XMLHttpRequest|sec-fetch-mode: navigate|accept: text/html", Medium::Json),
        // Browsers that do not: over plain HTTP.
        (v1, "GET", BROWSER, Medium::Html),
        (v1, "GET", "accept: */*|user-agent: Mozilla/5.0", Medium::Json),
        (v1, "GET", "accept: image/avif,image/webp,*/*;q=0.8|user-agent: Mozilla/5.0", Medium::Json),
        (v1, "GET", "accept: text/html, application/json", Medium::Json),
        (v1, "GET", "accept: text/html;q=0, */*", Medium::Json),
        (v1, "GET", "accept: text/htmlx", Medium::Json),
        (v1, "GET", "accept: image/png|accept: text/html", Medium::Html),
        // Programs.
        (v1, "GET", "accept: */*|user-agent: curl/8.5.0", Medium::Json),
        (v1, "GET", "", Medium::Json),
        // HTTP/1.0.
        (v0, "GET", "", Medium::Text),
        (v0, "GET", "accept: */*", Medium::Text),
        (v0, "GET", "accept: application/json", Medium::Json),
        (v0, "GET", BROWSER, Medium::Html),
    ] {
        assert_eq!(medium(version, method, fields), want, "{version:?} {method} {fields}");
    }
}

#[test]
fn a_connect_call_by_get_is_known_by_its_query_unless_a_person_opens_it() {
    let call = "/a.B/C?connect=v1&encoding=json&message=%7B%7D";
    for (path, method, fields, want) in [
        (call, "GET", "", Medium::Connect),
        ("/a.B/C?message=e30&encoding=proto&base64=1&connect=v1", "GET", "accept: */*", Medium::Connect),
        (call, "GET", "sec-fetch-mode: cors|origin: https://a.test", Medium::Connect),
        (call, "GET", "sec-fetch-mode: navigate", Medium::Html),
        (call, "GET", BROWSER, Medium::Html),
        (call, "GET", "connection: upgrade|upgrade: websocket", Medium::Json),
        (call, "POST", "", Medium::Json),
        ("/a.B/C?connect=v2&encoding=json&message=%7B%7D", "GET", "", Medium::Json),
        ("/a.B/C?connect=v1&encoding=json", "GET", "", Medium::Json),
        ("/a.B/C?connect=v1&message=%7B%7D", "GET", "", Medium::Json),
        ("/a.B/C?encoding=json&message=connect=v1", "GET", "", Medium::Json),
    ] {
        let caller = caller_at(path, Version::HTTP_11, method, fields);
        assert_eq!(caller.map_or(Medium::Json, |caller| caller.medium), want, "{method} {path} {fields}");
    }
}

#[test]
fn a_preflight_is_an_options_request_of_a_page_that_says_what_it_wants() {
    let of = |method, fields| caller(Version::HTTP_11, method, fields).and_then(|caller| caller.preflight);
    let all = "origin: https://a.test|access-control-request-method: PUT|access-control-request-headers: x-a";
    let preflight = of("OPTIONS", all).expect("a preflight");
    assert_eq!((preflight.method, preflight.headers), ("PUT".try_into().expect("a value"), "x-a".try_into().ok()));
    assert!(of("GET", all).is_none());
    assert!(of("OPTIONS", "origin: https://a.test").is_none());
    assert!(of("OPTIONS", "access-control-request-method: PUT").is_none());
}

#[test]
fn a_name_that_is_too_long_for_a_page_is_cut() {
    let long = format!("host: {}|accept: text/html", "ä".repeat(5000));
    let host = caller(Version::HTTP_11, "GET", &long).expect("a caller").host.expect("a host");
    assert_eq!(host.chars().count(), 260);
}
