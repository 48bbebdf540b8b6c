//! Who may call the interpreter. Without a token contexts are everybody's who reaches it, so web pages must not: one
//! can point a name of its own at this machine and call as if it were its own server (DNS rebinding).

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::server::{Fault, Server};
use crate::route::is_local;

/// The domains under which sandboxes are reached.
pub(super) struct Names(Vec<String>);

impl Names {
    pub(super) fn new(domain: Option<String>) -> Self {
        // Browsers keep names below localhost to this machine (RFC 6761, section 6.3).
        Self(["localhost".to_owned()].into_iter().chain(domain).collect())
    }

    fn has(&self, authority: &str) -> bool {
        let name = match authority.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => authority,
        };
        let below = |domain: &String| {
            let label = name.len().checked_sub(domain.len() + 1).and_then(|at| name.split_at_checked(at));
            label.is_some_and(|(label, rest)| {
                !label.is_empty() && rest.starts_with('.') && rest[1..].eq_ignore_ascii_case(domain)
            })
        };
        is_local(authority.as_bytes()) || self.0.iter().any(below)
    }
}

pub(super) async fn check(State(server): State<Server>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(Authority::as_str);
    match foreign(&server.names, request.headers(), authority) {
        Some(why) => Fault::new(StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

/// Why it is not for us.
fn foreign(names: &Names, headers: &HeaderMap, authority: Option<&str>) -> Option<&'static str> {
    // Twice is as bad as something that is no text.
    let only = |name| {
        let mut all = headers.get_all(name).iter();
        let first = all.next()?;
        Some(if all.next().is_none() { first.to_str().unwrap_or_default() } else { "" })
    };
    let host = only(header::HOST).unwrap_or_default();
    if !names.has(host) || authority.is_some_and(|authority| !names.has(authority)) {
        return Some("the interpreter answers to localhost, loopback addresses and the playground's domain only");
    }
    let page = only(header::ORIGIN).map(|origin| origin.split_once("://").unwrap_or_default().1);
    let site = only(header::HeaderName::from_static("sec-fetch-site"));
    let is_foreign = page.is_some_and(|page| !page.eq_ignore_ascii_case(host))
        || site.is_some_and(|site| !["same-origin", "none"].contains(&site));
    is_foreign.then_some("the interpreter is not for web pages of other origins")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_and_pages_are_refused() {
        let names = Names::new(Some("e2b.test".to_owned()));
        let is_refused = |fields: &[(&'static str, &str)], authority| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().expect("a value"));
            }
            foreign(&names, &headers, authority).is_some()
        };
        for host in [
            "127.0.0.1:3002",
            "127.64.0.1:49999",
            "[::1]:1",
            "localhost",
            "49999-i1.localhost:3002",
            "49999-i1.E2B.test",
            "sandbox.e2b.test:3443",
        ] {
            assert!(!is_refused(&[("host", host)], None), "{host}");
            assert!(!is_refused(&[("host", host)], Some(host)), "{host}");
            assert!(is_refused(&[("host", host)], Some("evil.example")), "{host}");
            assert!(is_refused(&[("host", host), ("host", host)], None), "{host}");
            let origin = format!("http://{host}");
            assert!(!is_refused(&[("host", host), ("origin", &origin), ("sec-fetch-site", "same-origin")], None));
            for (name, value) in [
                ("origin", "https://evil.example"),
                ("origin", "http://3000-i2.localhost:3002"),
                ("origin", "null"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
            ] {
                assert!(is_refused(&[("host", host), (name, value)], None), "{host} {name} {value}");
            }
        }
        for host in [
            "",
            "evil.example",
            "49999-i1.evil.example:49999",
            "localhost.evil.example",
            ".localhost",
            "e2b.test.evil.example",
            "xe2b.test",
            "49999-i1.localhost:",
            "é.localhost",
            "10.0.0.1",
        ] {
            assert!(is_refused(&[("host", host)], None), "{host}");
        }
        assert!(is_refused(&[], None));
    }
}
