//! HTTP as all control planes are asked: bounded, and every failure a text that holds no secret.

use std::{error::Error, time::Duration};

use reqwest::{Client, Response, redirect, retry};

use super::SetupError;

/// A new connection, TLS handshake included. The only timer here: a lookup's own limit may be longer
/// than it pays to wait for a SYN that nobody answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Shorter than what a load balancer keeps, so that it is this side that closes.
const POOL_IDLE: Duration = Duration::from_mins(1);
const POOL_MAX_IDLE: usize = 64;

/// Why there is no usable answer; for operators.
pub(super) type Fault = String;

pub(super) fn client() -> Result<Client, SetupError> {
    Client::builder()
        .user_agent(concat!("client-proxy/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        // A redirect would carry the key to wherever it points.
        .redirect(redirect::Policy::none())
        .referer(false)
        .retry(retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_MAX_IDLE)
        .build()
        .map_err(|error| SetupError::Client(told(error)))
}

/// The body; `None`: it is longer than `max` bytes.
pub(super) async fn body(mut response: Response, max: usize) -> Result<Option<Vec<u8>>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// reqwest's error and its causes, without the URL, which may hold credentials.
pub(super) fn told(error: reqwest::Error) -> Fault {
    with_causes(&error.without_url())
}

/// An error and its causes in one line.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
