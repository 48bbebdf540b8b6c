//! The routing of a head: which sandbox a Host, a target and two fields mean.

use client_proxy::route::{Rules, Target, route};
use http::{HeaderValue, Request, Uri, Version};

/// Lines: target, Host, `E2b-Sandbox-Id`, `E2b-Sandbox-Port`; the first byte tells version and rules.
///
/// # Panics
/// Where something does not hold.
pub fn check(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    let mut lines = rest.split(|byte| *byte == b'\n');
    let Ok(target) = Uri::try_from(lines.next().unwrap_or_default()) else { return };
    let mut request = Request::new(());
    *request.uri_mut() = target;
    *request.version_mut() = [Version::HTTP_11, Version::HTTP_10, Version::HTTP_2][usize::from(how % 3)];
    for name in ["host", "e2b-sandbox-id", "e2b-sandbox-port", "host"] {
        let value = lines.next().filter(|value| !value.is_empty());
        if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
            request.headers_mut().append(name, value);
        }
    }
    let strict = how & 4 != 0;
    let rules = Rules {
        domains: if strict { vec!["example.test".into()] } else { Vec::new() },
        header_hosts: vec!["shared.example.test".into()],
        default_port: (how & 8 != 0).then(|| "80".parse().expect("a port")),
        default_port_for: None,
        shared_within_domains: how & 16 != 0,
    };
    let (head, ()) = request.into_parts();
    let Ok(Target { sandbox, port, host, shared }) = route(&head, &rules) else { return };
    let name = host.as_bytes();
    assert!(!name.is_empty() && name.len() <= 255, "no Host of a request");
    assert!(
        name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(byte)),
        "{host:?} would go upstream"
    );
    let id = sandbox.as_str();
    assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{id:?}");
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    let from_fields = |name: &str, value: &str| head.headers.get(name).is_some_and(|given| given == value);
    let (port_text, own) = (port.to_string(), shared.as_ref().and_then(|own| own.to_str().ok()));
    let named = lower.starts_with(&format!("{port_text}-{id}"))
        || lower.split('-').next().and_then(|first| first.parse().ok()) == Some(port.get()) && lower.contains(id)
        || (rules.default_port == Some(port) && lower.starts_with(id));
    assert!(
        named || (from_fields("e2b-sandbox-id", id) && head.headers.contains_key("e2b-sandbox-port")),
        "{host:?} does not say {port}-{id}"
    );
    if let Some(own) = own {
        assert!(own.starts_with(&format!("{port_text}-{id}.")), "{own}");
        let again = Request::builder().header("host", own).body(()).expect("a head").into_parts().0;
        let again = route(&again, &Rules::default()).expect("its own Host names it");
        assert_eq!((again.sandbox, again.port, again.shared), (sandbox, port, None), "{own}");
    }
}
