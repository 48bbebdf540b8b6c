use super::*;

fn head(lines: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().uri("/a?b");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

fn peer(trusted: bool) -> Peer {
    Peer::new(IpAddr::from([192, 0, 2, 7]), trusted, false)
}

fn pass(lines: &[(&str, &str)], trusted: bool) -> HeaderMap {
    let mut head = head(lines);
    let request_id = HeaderValue::from_static("id");
    let passage = Passage {
        marks: Marks::of(&head.headers),
        host: HeaderValue::from_static("8000-a.dom"),
        original_host: None,
        peer: &peer(trusted),
        request_id: &request_id,
        strip_traffic_token: true,
        upgrade: None,
    };
    outbound(&mut head, passage);
    head.headers
}

fn all<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
}

#[test]
fn hop_by_hop_fields_and_those_nominated_go() {
    let headers = pass(
        &[
            ("connection", "close, X-Private"),
            ("connection", "keep-alive , x-other"),
            ("x-private", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("x-kept", "1"),
            ("x-sandbox-wake", "never"),
            ("e2b-traffic-access-token", "t"),
        ],
        false,
    );
    let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["host", "x-forwarded-for", "x-kept", "x-request-id"]);
}

#[test]
fn trailers_stay_wanted() {
    let headers = pass(&[("te", "gzip;q=0.5, Trailers"), ("trailer", "x-sum")], false);
    assert_eq!((all(&headers, "te"), all(&headers, "connection")), (vec!["trailers"], vec!["TE"]));
    assert_eq!(all(&headers, "trailer"), ["x-sum"]);
}

#[test]
fn a_body_read_by_its_transfer_coding_has_no_length() {
    let headers = pass(&[("transfer-encoding", "chunked"), ("content-length", "5")], false);
    assert!(!headers.contains_key("content-length") && !headers.contains_key("transfer-encoding"));
}

#[test]
fn only_a_trusted_peer_may_speak_for_others() {
    let claims = [
        ("forwarded", "for=1.2.3.4"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "5.6.7.8"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-whatever", "x"),
        ("x-real-ip", "1.2.3.4"),
    ];
    let stranger = pass(&claims, false);
    assert_eq!(all(&stranger, "x-forwarded-for"), ["192.0.2.7"]);
    let left = ["forwarded", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-whatever", "x-real-ip"];
    assert!(left.iter().all(|name| !stranger.contains_key(*name)));
    let friend = pass(&claims, true);
    assert_eq!(all(&friend, "x-forwarded-for"), ["1.2.3.4, 5.6.7.8, 192.0.2.7"]);
    assert_eq!((all(&friend, "x-forwarded-proto"), all(&friend, "x-real-ip")), (vec!["https"], vec!["1.2.3.4"]));
}

#[test]
fn an_absolute_target_goes_on_in_origin_form() {
    for (from, to) in [("http://a.b/c?d", "/c?d"), ("http://a.b", "/"), ("http://a.b?x", "/?x"), ("/", "/"), ("*", "*")]
    {
        let mut head = head(&[]);
        head.uri = from.parse().expect("a target");
        let request_id = HeaderValue::from_static("id");
        let host = HeaderValue::from_static("a.b");
        let passage = Passage {
            marks: Marks::of(&head.headers),
            host,
            original_host: None,
            peer: &peer(false),
            request_id: &request_id,
            strip_traffic_token: false,
            upgrade: None,
        };
        outbound(&mut head, passage);
        assert_eq!(head.uri.to_string(), to, "{from}");
    }
}

#[test]
fn nobody_else_speaks_in_our_name() {
    for (value, want) in [
        ("client-proxy; error=x", vec![]),
        ("\"Client-Proxy\";error=x, nginx; details=\"a, client-proxy\"", vec!["nginx; details=\"a, client-proxy\""]),
        ("a, b", vec!["a, b"]),
    ] {
        let mut head = http::Response::new(()).into_parts().0;
        head.headers.insert(PROXY_STATUS, HeaderValue::from_static(value));
        inbound(&mut head);
        assert_eq!(all(&head.headers, "proxy-status"), want, "{value}");
    }
}

#[test]
fn the_client_is_the_last_hop_that_is_not_ours() {
    let ours = |ip: IpAddr| ip.to_string().starts_with("10.");
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6, 1.2.3.4, 10.0.0.9"));
    let from =
        |peer: [u8; 4]| client_address(&headers, &Peer::new(peer.into(), ours(peer.into()), false), ours).to_string();
    assert_eq!((from([10, 0, 0, 1]), from([9, 9, 9, 9])), ("1.2.3.4".into(), "9.9.9.9".into()));
}

/// The walk that finds the fields must know every name that is looked for: with all marks set nothing is skipped.
#[test]
fn the_marks_skip_nothing_that_is_there() {
    let names = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "forwarded",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-any",
        "proxy-status",
        "x-sandbox-wake",
        "e2b-traffic-access-token",
        "x-access-token",
        "x-request-id",
        "user-agent",
        "x-named",
    ];
    let value = |name: &str| match name {
        "connection" => "x-named, close",
        "content-length" => "3, 3",
        "te" => "trailers",
        "proxy-status" => "client-proxy; error=x",
        _ => "v",
    };
    let request_id = HeaderValue::from_static("id");
    for (first, second) in names.iter().flat_map(|first| names.iter().map(move |second| (first, second))) {
        for trusted in [true, false] {
            let [with_marks, with_all] = [None, Some(Marks::ALL)].map(|marks| {
                let mut head = head(&[(first, value(first)), (second, value(second))]);
                let marks = marks.unwrap_or_else(|| Marks::of(&head.headers));
                let (host, peer) = (HeaderValue::from_static("8000-a.dom"), peer(trusted));
                let passage = Passage {
                    marks,
                    host,
                    original_host: None,
                    peer: &peer,
                    request_id: &request_id,
                    strip_traffic_token: true,
                    upgrade: None,
                };
                outbound(&mut head, passage);
                assert!(marks.has_token() || ![first, second].iter().any(|name| name.ends_with("access-token")));
                assert!(marks.has_request_id() || ![first, second].contains(&&"x-request-id"));
                head.headers
            });
            assert_eq!(with_marks, with_all, "{first}, {second}");
        }
        let [with_marks, with_all] = [None, Some(Marks::ALL)].map(|marks| {
            let mut head = http::Response::new(()).into_parts().0;
            for name in [first, second] {
                head.headers.append(*name, HeaderValue::from_static(value(name)));
            }
            let marks = marks.unwrap_or_else(|| Marks::of(&head.headers));
            clean(&mut head, marks);
            head.headers
        });
        assert_eq!(with_marks, with_all, "answer: {first}, {second}");
    }
}

#[test]
fn what_is_no_authority_is_none_of_http_2() {
    for (host, fits) in
        [("8000-a.dom:81", true), ("8000-a.dom:", true), ("[::1]:3002", true), ("a b", false), ("", false)]
    {
        assert_eq!(http2(&head(&[("host", host)])).is_some(), fits, "{host}");
    }
    assert!(http2(&head(&[])).is_none());
}
