use http::Request;
use proptest::prelude::*;

use super::*;

fn rules(domains: &[&str], header_hosts: &[&str], default_port: Option<u16>) -> Rules {
    Rules {
        domains: domains.iter().map(ToString::to_string).collect(),
        header_hosts: header_hosts.iter().map(ToString::to_string).collect(),
        default_port: default_port.and_then(Port::new),
        default_port_for: None,
        shared_within_domains: false,
    }
}

/// A head in origin form with these header lines.
fn head(headers: &[(&str, &str)]) -> Parts {
    target("/", Version::HTTP_11, headers)
}

fn target(uri: &str, version: Version, headers: &[(&str, &str)]) -> Parts {
    let mut builder = Request::builder().uri(uri).version(version);
    for (name, value) in headers {
        builder = builder.header(*name, value.as_bytes());
    }
    builder.body(()).expect("a request").into_parts().0
}

/// `port id` or the error's name.
fn told(result: &Result<Target, Misrouted>) -> String {
    match result {
        Ok(target) => format!("{} {}", target.port, target.sandbox),
        Err(why) => format!("{why:?}"),
    }
}

#[test]
fn a_host_names_port_and_sandbox() {
    let long = format!("80-a.{}", "d".repeat(251));
    let longest = format!("80-a.{}", "d".repeat(250));
    for (host, want) in [
        ("49983-i7d1.e2b.app", "49983 i7d1"),
        ("3000-I7D1.E2B.App", "3000 i7d1"),
        ("3000-abc.dom:3002", "3000 abc"),
        ("3000-abc.dom.", "3000 abc"),
        ("3000-abc.dom.:3002", "3000 abc"),
        ("3000-abc.dom:", "3000 abc"),
        ("1-a.d", "1 a"),
        ("65535-a.d", "65535 a"),
        ("49983-id-6532622b.demo.dom", "49983 id"),
        ("49983-id-6532622b-x-y.demo.dom", "49983 id"),
        ("80-id-.dom", "80 id"),
        ("80-id.my-domain.co-op.dev", "80 id"),
        ("80-id.localhost", "80 id"),
        ("80-id.1.2.3.4", "80 id"),
        ("080-id.dom", "80 id"),
        (&longest, "80 a"),
        ("abcd-id.dom", "InvalidPort"),
        ("70000-id.dom", "InvalidPort"),
        ("65536-id.dom", "InvalidPort"),
        ("0-id.dom", "InvalidPort"),
        ("-id.dom", "InvalidPort"),
        ("99999999999999999999-id.dom", "InvalidPort"),
        ("80-.dom", "InvalidSandboxId"),
        ("80--id.dom", "InvalidSandboxId"),
        ("80-a_b.dom", "InvalidSandboxId"),
        ("80-id", "InvalidHost"),
        ("80-id.", "InvalidHost"),
        ("80-id..dom", "InvalidHost"),
        ("80-id.dom..", "InvalidHost"),
        (".80-id.dom", "InvalidHost"),
        (".", "InvalidHost"),
        ("", "InvalidHost"),
        ("id.dom", "InvalidHost"),
        ("www.example.com", "InvalidHost"),
        ("nodot", "InvalidHost"),
        ("80-id.dom:x", "InvalidHost"),
        ("80-id.dom:0", "InvalidHost"),
        ("80-id.dom:65536", "InvalidHost"),
        ("80-id.dom:80:80", "InvalidHost"),
        ("user@80-id.dom", "InvalidHost"),
        ("80-id.dom/path", "InvalidHost"),
        ("80-id.dom, 80-id.dom", "InvalidHost"),
        ("80-id.do m", "InvalidHost"),
        ("80-id.d%6Fm", "InvalidHost"),
        ("80-ïd.dom", "InvalidHost"),
        ("::1", "InvalidHost"),
        ("[::1", "InvalidHost"),
        ("[fe80::1%25eth0]", "InvalidHost"),
        (&long, "InvalidHost"),
        (&"a".repeat(10_000), "InvalidHost"),
    ] {
        // Headers that would do on a shared Host never help a Host that names somebody.
        for spoof in [&[][..], &[("E2b-Sandbox-Id", "b"), ("E2b-Sandbox-Port", "9")]] {
            let lines = [&[("host", host)], spoof].concat();
            let routed = route(&head(&lines), &Rules::default());
            assert_eq!(told(&routed), want, "{host}");
            if let Ok(target) = routed {
                assert_eq!(target.host, host, "as the client wrote it");
                assert_eq!(target.shared, None, "{host}");
            }
        }
    }
}

#[test]
fn shared_hosts_route_by_headers() {
    let rules = rules(&["e2b.app"], &["proxy.internal", "gw"], None);
    for (host, own) in [
        ("localhost", None),
        ("LocalHost.:3002", None),
        ("127.0.0.1", None),
        ("192.168.100.66:3002", None),
        ("8.8.8.8", None),
        ("[::1]", None),
        ("[2001:db8::1]:3002", None),
        ("sandbox.e2b.app", Some("3000-abc.e2b.app")),
        ("Sandbox.Foreign.Example:8443", Some("3000-abc.foreign.example:8443")),
        ("sandbox.localhost.", Some("3000-abc.localhost")),
        ("proxy.internal", Some("3000-abc.proxy.internal")),
        ("proxy.internal:3002", Some("3000-abc.proxy.internal:3002")),
        ("GW:", Some("3000-abc.gw")),
    ] {
        for order in [[0, 1], [1, 0]] {
            let pair = [("e2b-sandbox-id", "abc"), ("E2B-SANDBOX-PORT", "3000")];
            let lines = [("host", host), pair[order[0]], pair[order[1]]];
            let target = route(&head(&lines), &rules).expect(host);
            assert_eq!((target.sandbox.as_str(), target.port.get()), ("abc", 3000));
            assert_eq!(target.host, host);
            let shared = target.shared.as_ref().map(HeaderValue::as_bytes);
            assert_eq!(shared, own.map(str::as_bytes), "{host}");
        }
    }
}

#[test]
fn routing_headers_are_needed_once_each() {
    const ID: (&str, &str) = ("E2b-Sandbox-Id", "abc");
    const PORT: (&str, &str) = ("E2b-Sandbox-Port", "3000");
    for (lines, want) in [
        (&[][..], "MissingHeader"),
        (&[ID], "MissingHeader"),
        (&[PORT], "MissingHeader"),
        (&[ID, ID], "InvalidSandboxId"),
        (&[ID, ID, PORT], "InvalidSandboxId"),
        (&[ID, PORT, PORT], "InvalidPort"),
        (&[ID, ("E2b-Sandbox-Port", "x")], "InvalidPort"),
        (&[ID, ("E2b-Sandbox-Port", "0")], "InvalidPort"),
        (&[ID, ("E2b-Sandbox-Port", "+80")], "InvalidPort"),
        (&[ID, ("E2b-Sandbox-Port", "65536")], "InvalidPort"),
        (&[ID, ("E2b-Sandbox-Port", "")], "InvalidPort"),
        (&[PORT, ("E2b-Sandbox-Id", "")], "InvalidSandboxId"),
        (&[PORT, ("E2b-Sandbox-Id", "a/b")], "InvalidSandboxId"),
        (&[PORT, ("E2b-Sandbox-Id", "ä")], "InvalidSandboxId"),
        (&[ID, PORT], "3000 abc"),
    ] {
        for host in ["sandbox.dom", "10.0.0.1"] {
            let lines = [&[("host", host)], lines].concat();
            assert_eq!(told(&route(&head(&lines), &Rules::default())), want, "{lines:?}");
        }
    }
}

#[test]
fn only_listed_domains_and_what_is_below_them() {
    let rules = rules(&["e2b.app", "sbx.test"], &[], None);
    for (host, want) in [
        ("80-id.e2b.app", "80 id"),
        ("80-id.eu.e2b.app", "80 id"),
        ("80-id.SBX.test:443", "80 id"),
        ("80-id.note2b.app", "UnknownDomain"),
        ("80-id.e2b.app.evil.example", "UnknownDomain"),
        ("x.example", "UnknownDomain"),
        ("x-y.example", "UnknownDomain"),
        ("80-id.app", "UnknownDomain"),
        ("x.e2b.app", "InvalidHost"),
    ] {
        assert_eq!(told(&route(&head(&[("host", host)]), &rules)), want, "{host}");
    }
}

#[test]
fn a_shared_host_has_any_domain_unless_it_is_bound_to_those_listed() {
    for (within, host, want) in [
        (false, "sandbox.evil.example", "3000 abc"),
        (true, "sandbox.evil.example", "UnknownDomain"),
        (true, "sandbox.note2b.app", "UnknownDomain"),
        (true, "sandbox.e2b.app", "3000 abc"),
        (true, "sandbox.eu.e2b.app:443", "3000 abc"),
        (true, "localhost:3002", "3000 abc"),
        (true, "127.0.0.1", "3000 abc"),
        (true, "evil.example", "UnknownDomain"),
    ] {
        let rules = Rules { shared_within_domains: within, ..rules(&["e2b.app"], &[], None) };
        let head = head(&[("host", host), ("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", "3000")]);
        assert_eq!(told(&route(&head, &rules)), want, "{within} {host}");
    }
}

#[test]
fn only_names_of_this_machine_are_local() {
    let local = |host: &str| is_local(host.as_bytes());
    for good in ["localhost", "LOCALHOST:3000", "127.0.0.1:3000", "127.9.9.9", "[::1]:3000", "[::ffff:127.0.0.1]"] {
        assert!(local(good), "{good}");
    }
    for bad in [
        "",
        "evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "127.0.0.1.evil.example:3000",
        "0.0.0.0",
        "[::]:80",
        "localhost:x",
        "a@localhost",
    ] {
        assert!(!local(bad), "{bad}");
    }
}

#[test]
fn a_default_port_makes_a_bare_id_a_name() {
    let rules = rules(&[], &["gw.dom", "80-listed.dom"], Some(49983));
    for (host, want, own) in [
        ("Abc.dom:8443", "49983 abc", Some("49983-abc.dom:8443")),
        ("80-abc.dom", "80 abc", None),
        ("a_b.dom", "InvalidSandboxId", None),
        ("nodot", "InvalidHost", None),
        ("sandbox.dom", "MissingHeader", None),
        ("gw.dom", "MissingHeader", None),
        ("80-listed.dom", "80 listed", None),
    ] {
        let routed = route(&head(&[("host", host)]), &rules);
        assert_eq!(told(&routed), want, "{host}");
        let shared = routed.ok().and_then(|target| target.shared);
        assert_eq!(shared.as_ref().map(HeaderValue::as_bytes), own.map(str::as_bytes));
    }
}

#[test]
fn a_default_port_may_be_one_id_s() {
    let only = Rules { default_port_for: SandboxId::new("api"), ..rules(&[], &[], Some(3000)) };
    for (host, want) in [
        ("api.dom", "3000 api"),
        ("3000-api.dom", "3000 api"),
        ("80-api.dom", "InvalidHost"),
        ("foo.dom", "InvalidHost"),
        ("80-foo.dom", "80 foo"),
    ] {
        assert_eq!(told(&route(&head(&[("host", host)]), &only)), want, "{host}");
    }
}

#[test]
fn target_and_host_must_mean_the_same() {
    const V10: Version = Version::HTTP_10;
    const V11: Version = Version::HTTP_11;
    const V2: Version = Version::HTTP_2;
    for (version, uri, hosts, want) in [
        (V11, "/", &[][..], "InvalidHost"),
        (V10, "/", &[], "InvalidHost"),
        (V2, "/", &[], "InvalidHost"),
        (V10, "/", &["80-a.dom"], "80-a.dom"),
        (V2, "/", &["80-a.dom"], "80-a.dom"),
        (V11, "*", &["80-a.dom"], "80-a.dom"),
        (V11, "/", &["80-a.dom", "80-a.dom"], "InvalidHost"),
        (V11, "/", &["80-a.dom", "80-b.dom"], "InvalidHost"),
        (V11, "http://80-a.dom/x", &["80-a.dom"], "80-a.dom"),
        (V11, "http://80-a.dom/x", &["80-A.DOM"], "80-a.dom"),
        (V11, "http://80-A.dom/x", &["80-a.dom."], "80-A.dom"),
        (V11, "http://80-a.dom/x", &["80-a.dom:80"], "80-a.dom"),
        (V11, "http://80-a.dom:80/x", &["80-a.dom"], "80-a.dom:80"),
        (V11, "https://80-a.dom/x", &["80-a.dom:443"], "80-a.dom"),
        (V11, "http://80-a.dom/x", &["80-a.dom:443"], "InvalidHost"),
        (V11, "http://80-a.dom:81/x", &["80-a.dom"], "InvalidHost"),
        (V11, "http://80-a.dom/x", &["80-b.dom"], "InvalidHost"),
        (V11, "http://80-a.dom/x", &[""], "InvalidHost"),
        (V11, "http://80-a.dom/x", &[], "InvalidHost"),
        (V10, "http://80-a.dom/x", &[], "80-a.dom"),
        (V2, "http://80-a.dom/x", &[], "80-a.dom"),
        (V2, "http://80-a.dom/x", &["80-a.dom"], "80-a.dom"),
        (V2, "http://80-a.dom/x", &["80-b.dom"], "InvalidHost"),
        (V2, "http://80-a.dom/x", &["80-a.dom", "80-a.dom"], "InvalidHost"),
        (V11, "http://user@80-a.dom/x", &["80-a.dom"], "InvalidHost"),
        (V11, "http://user@80-a.dom/x", &["user@80-a.dom"], "InvalidHost"),
        (V2, "http://u:p@80-a.dom/x", &[], "InvalidHost"),
        (V11, "80-a.dom:80", &["80-a.dom:80"], "InvalidHost"),
    ] {
        let lines: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let routed = route(&target(uri, version, &lines), &Rules::default());
        match routed {
            Ok(target) => assert_eq!(target.host, want, "{version:?} {uri} {hosts:?}"),
            Err(_) => assert_eq!(told(&routed), want, "{version:?} {uri} {hosts:?}"),
        }
    }
}

#[test]
fn connect_is_refused() {
    let mut head = head(&[("host", "80-a.dom")]);
    head.method = Method::CONNECT;
    assert_eq!(route(&head, &Rules::default()), Err(Misrouted::ConnectMethod));
}

proptest! {
    #[test]
    fn well_formed_names_route_to_their_own_port_and_id(
        port in 1u16..,
        id in "[a-z0-9]{1,63}",
        ignored in proptest::option::of("[a-z0-9-]{0,9}"),
        domain in "[a-z0-9_-]{1,9}(\\.[a-z0-9_-]{1,9}){0,3}",
        upper in any::<bool>(),
        dot in any::<bool>(),
        suffix in proptest::option::of(1u16..),
    ) {
        let mut host = format!("{port}-{id}");
        if let Some(ignored) = ignored {
            host = format!("{host}-{ignored}");
        }
        host = format!("{host}.{domain}");
        if upper {
            host = host.to_uppercase();
        }
        if dot {
            host.push('.');
        }
        if let Some(suffix) = suffix {
            host = format!("{host}:{suffix}");
        }
        let rules = rules(&[&domain], &["gw.dom"], Some(49983));
        let lines = [("host", host.as_str()), ("e2b-sandbox-id", "x"), ("e2b-sandbox-port", "1")];
        let target = route(&head(&lines), &rules);
        prop_assert_eq!(told(&target), format!("{port} {id}"));
    }

    #[test]
    fn no_input_panics(
        host in proptest::collection::vec(any::<u8>(), 0..300),
        near in "[0-9a-z.:@\\[\\]-]{0,40}",
        id in proptest::collection::vec(any::<u8>(), 0..20),
        uri in "(/|http://|https://|)[0-9a-z.:@/\\[\\]-]{0,40}",
    ) {
        let mut head = head(&[]);
        head.uri = uri.parse().unwrap_or_default();
        for host in [host.as_slice(), near.as_bytes()] {
            let Ok(host) = HeaderValue::from_bytes(host) else { continue };
            head.headers.insert(HOST, host.clone());
            if let Ok(id) = HeaderValue::from_bytes(&id) {
                head.headers.insert(SANDBOX_ID, id.clone());
                head.headers.insert(SANDBOX_PORT, id);
            }
            if let Ok(target) = route(&head, &rules(&[], &["a"], Some(80))) {
                prop_assert!(target.host.len() <= MAX_HOST);
            }
        }
    }
}
