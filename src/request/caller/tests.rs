use http::Request;

use super::*;

const BROWSER: &str = "accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn caller(version: Version, method: &str, fields: &str) -> Option<Box<Caller>> {
    let mut request = Request::builder().version(version).method(method).uri("/");
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
