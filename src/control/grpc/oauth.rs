//! Tokens for the API: OAuth 2.0 client credentials (RFC 6749 §4.4). One is asked for ahead of the end of the one
//! before, which serves meanwhile; never two at once.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::watch,
    time::{Instant, timeout},
};
use tonic::metadata::AsciiMetadataValue;

use crate::{
    config,
    control::{
        SetupError,
        http::{self, Fault},
    },
    types::Secret,
};

const SCOPE: &str = "sandboxes:lifecycle";
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// A token is a few KiB at most.
const MAX_BODY: usize = 64 * 1024;
/// A server that does not say how long its token is good (RFC 6749 §5.1 only recommends it).
const UNTOLD: Duration = Duration::from_mins(5);
/// Whatever it says, as seconds.
const SHORTEST: u64 = 1;
const LONGEST: u64 = 24 * 60 * 60;
/// So long before its end a token is asked for anew; earlier where it is short-lived.
const AHEAD: Duration = Duration::from_mins(1);
/// So long nobody asks again after a failure.
const FAILED: Duration = Duration::from_millis(500);
/// Of `application/x-www-form-urlencoded`, in which user and password go (RFC 6749 §2.3.1).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// There is no token.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no OAuth token: {0}")]
pub(super) struct Unauthorized(Arc<str>);

/// A token, as it goes into a call.
#[derive(Clone)]
pub(super) struct Token {
    value: AsciiMetadataValue,
    /// Tells it from others.
    serial: u64,
    renew: Instant,
    expires: Instant,
}

impl Token {
    pub(super) fn value(&self) -> AsciiMetadataValue {
        self.value.clone()
    }
}

/// Gets tokens, and keeps the last.
#[derive(Clone)]
pub(super) struct Tokens(Arc<Shared>);

struct Shared {
    endpoint: Endpoint,
    control: Handle,
    state: Mutex<State>,
}

struct Endpoint {
    client: Client,
    url: Url,
    user: String,
    password: String,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// Closed when the request under way has ended, however it did.
    flight: Option<watch::Receiver<()>>,
    failed: Option<(Instant, Unauthorized)>,
    serial: u64,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("host", &self.0.endpoint.url.host_str()).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(super) fn new(settings: &config::OAuth, control: &Handle) -> Result<Self, SetupError> {
        let secret = std::str::from_utf8(settings.client_secret.expose()).map_err(|_| SetupError::ApiKey)?;
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let endpoint = Endpoint {
            client: http::client()?,
            url: settings.token_url.clone(),
            user: encoded(&settings.client_id),
            password: encoded(secret),
        };
        Ok(Self(Arc::new(Shared { endpoint, control: control.clone(), state: Mutex::default() })))
    }

    /// A token that is good now. Whoever needs one while it is being asked for waits for that one request.
    pub(super) async fn get(&self) -> Result<Token, Unauthorized> {
        loop {
            let mut flight = {
                let (now, mut state) = (Instant::now(), self.0.lock());
                let failed = state.failed.clone().filter(|(at, _)| now < *at + FAILED).map(|(_, error)| error);
                if let Some(token) = state.token.clone().filter(|token| now < token.expires) {
                    if now >= token.renew && failed.is_none() {
                        self.fly(&mut state);
                    }
                    return Ok(token);
                }
                if let Some(error) = failed {
                    return Err(error);
                }
                self.fly(&mut state)
            };
            // Nothing is ever sent: it ends by being closed.
            while flight.changed().await.is_ok() {}
        }
    }

    /// The API took no call with it: the next is another.
    pub(super) fn refused(&self, token: &Token) {
        let mut state = self.0.lock();
        state.token = state.token.take().filter(|current| current.serial != token.serial);
    }

    /// The request under way, begun now if there is none.
    fn fly(&self, state: &mut State) -> watch::Receiver<()> {
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (end, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        state.serial += 1;
        let (shared, serial) = (self.0.clone(), state.serial);
        self.0.control.spawn(async move {
            let outcome = shared.endpoint.request(serial).await;
            let mut state = shared.lock();
            match outcome {
                Ok(token) => (state.token, state.failed) = (Some(token), None),
                Err(why) => {
                    tracing::warn!(host = shared.endpoint.url.host_str(), why, "no OAuth token");
                    state.failed = Some((Instant::now(), Unauthorized(why.into())));
                }
            }
            drop(state);
            drop(end);
        });
        flight
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// RFC 6749 §5.1
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    /// A number; some servers write it as text.
    expires_in: Option<Value>,
}

impl Endpoint {
    async fn request(&self, serial: u64) -> Result<Token, Fault> {
        timeout(REQUEST_LIMIT, self.ask(serial)).await.unwrap_or_else(|_| Err("no answer in time".into()))
    }

    async fn ask(&self, serial: u64) -> Result<Token, Fault> {
        let asked = Instant::now();
        let request = self.client.post(self.url.clone()).basic_auth(&self.user, Some(&self.password));
        let request = request
            .header(reqwest::header::ACCEPT, "application/json")
            .form(&[("grant_type", "client_credentials"), ("scope", SCOPE)]);
        let response = request.send().await.map_err(http::told)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        let body = http::body(response, MAX_BODY).await?.ok_or("the answer is too long")?;
        // serde_json's texts may quote what they did not like: the kind of error has to do.
        let granted: Granted =
            serde_json::from_slice(&body).map_err(|error| format!("no token in the answer: {:?}", error.classify()))?;
        granted.token(serial, asked)
    }
}

impl Granted {
    fn token(&self, serial: u64, asked: Instant) -> Result<Token, Fault> {
        if self.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err("the token is no bearer token".into());
        }
        let token = Secret::new(format!("Bearer {}", self.access_token));
        let value = super::secret(&token).filter(|_| !self.access_token.is_empty());
        let value = value.ok_or("the token has characters that no header can carry")?;
        let seconds = |told: &Value| told.as_u64().or_else(|| told.as_str()?.parse().ok()).unwrap_or(SHORTEST);
        let told = self.expires_in.as_ref().map(seconds);
        let ttl = told.map_or(UNTOLD, |seconds| Duration::from_secs(seconds.clamp(SHORTEST, LONGEST)));
        Ok(Token { value, serial, renew: asked + ttl - AHEAD.min(ttl / 5), expires: asked + ttl })
    }
}
