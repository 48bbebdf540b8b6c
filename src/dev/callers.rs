//! Who may call the control API.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{api::Api, api_error::ApiError};

/// A web page can point a name of its own at this machine and then talk to the API as to its own server
/// (DNS rebinding); its name gives it away.
pub(super) async fn check_host(
    State(api): State<Arc<Api>>,
    uri: Uri,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let is_ours = |host: &str| is_local(host) || api.domain.as_ref().is_some_and(|domain| domain.is_api(host));
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
    let good = host.is_some_and(is_ours)
        && more.is_none()
        && uri.authority().is_none_or(|authority| is_ours(authority.as_str()));
    if good {
        return next.run(request).await;
    }
    let text = "the playground answers to localhost, loopback addresses and its own domain (--tls) only";
    ApiError::new(StatusCode::FORBIDDEN, "foreign_host", text).into_response()
}

pub(super) fn is_local(authority: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

pub(super) async fn check_key(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let shown = headers.get("x-api-key").map_or(&b""[..], |key| key.as_bytes());
    if api.key.matches(shown) {
        return next.run(request).await;
    }
    let text = "X-API-KEY is missing or wrong: the playground printed its key when it started";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for good in ["localhost", "LOCALHOST:3000", "127.0.0.1:3000", "127.9.9.9", "[::1]:3000", "[::1]"] {
            assert!(is_local(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "127.0.0.1.evil.example:3000",
            "0.0.0.0",
            "[::]:80",
            "localhost:",
            "a@localhost",
        ] {
            assert!(!is_local(bad), "{bad}");
        }
    }
}
