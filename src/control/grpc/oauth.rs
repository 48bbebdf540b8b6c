//! Access tokens by client credentials (RFC 6749 §4.4): asked for ahead of their end, by one request at a time.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::{Client, Url};
use tokio::{runtime::Handle, sync::watch, time::Instant};

use super::token::Token;
use crate::{
    config,
    control::{
        SetupError,
        http::{body, client, told},
    },
};

/// What the tokens are for.
const SCOPE: &str = "sandboxes:lifecycle";
/// The longest answer that is read, in bytes.
const MAX_BODY: usize = 64 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// So long nobody asks again after a failure, or after a token that the API refused.
const PAUSE: Duration = Duration::from_millis(500);

/// Why there is no token; for operators, without a secret.
pub(super) type Fault = Arc<str>;

type Landing = Option<Result<Token, Fault>>;

/// Where tokens come from.
pub(super) struct OAuth {
    shared: Arc<Shared>,
    control: Handle,
}

struct Shared {
    client: Client,
    url: Url,
    /// Id and secret, as HTTP Basic authentication.
    authorization: HeaderValue,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// The request under way.
    flight: Option<watch::Receiver<Landing>>,
    failed: Option<(Instant, Fault)>,
    refused: Option<Instant>,
}

impl OAuth {
    pub(super) fn new(settings: &config::OAuth, control: &Handle) -> Result<Self, SetupError> {
        let mut url = settings.token_url.clone();
        url.set_fragment(None);
        if url.cannot_be_a_base() || !matches!(url.scheme(), "http" | "https") {
            return Err(SetupError::Url);
        }
        // What stands there would be a second Authorization.
        let _ = (url.set_username(""), url.set_password(None));
        let authorization = basic(settings);
        let shared = Shared { client: client()?, url, authorization, state: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), control: control.clone() })
    }

    /// A token that is valid now. Waits only where there is none.
    pub(super) async fn token(&self) -> Result<Token, Fault> {
        let mut flight = {
            let mut state = self.shared.state();
            let now = Instant::now();
            let failed = state.failed.as_ref().filter(|(at, _)| now < *at + PAUSE).map(|(_, fault)| fault.clone());
            let valid = state.token.clone().filter(|token| now < token.end);
            match (valid, failed) {
                (Some(token), failed) => {
                    if now >= token.renew && failed.is_none() {
                        self.flight(&mut state);
                    }
                    return Ok(token);
                }
                (None, Some(fault)) => return Err(fault),
                (None, None) => self.flight(&mut state),
            }
        };
        let landing = flight.wait_for(Option::is_some).await.ok().and_then(|landing| landing.clone());
        landing.unwrap_or_else(|| Err("the request was lost".into()))
    }

    /// The API refused this token: the next call gets another. Tokens that it refuses one after the other are asked
    /// for with pauses.
    pub(super) fn refused(&self, token: &Token) {
        let mut state = self.shared.state();
        let now = Instant::now();
        let is_current = state.token.as_ref().is_some_and(|current| current.is(token));
        if is_current && state.refused.is_none_or(|at| now >= at + PAUSE) {
            state.token = None;
            state.refused = Some(now);
        }
    }

    /// The request under way, begun now if there is none.
    fn flight(&self, state: &mut State) -> watch::Receiver<Landing> {
        // One that panicked has closed its channel.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return flight.clone();
        }
        let (sender, flight) = watch::channel(None);
        state.flight = Some(flight.clone());
        let shared = self.shared.clone();
        self.control.spawn(async move {
            let outcome = shared.ask().await;
            let mut state = shared.state();
            state.flight = None;
            match &outcome {
                Ok(token) => (state.token, state.failed) = (Some(token.clone()), None),
                Err(fault) => {
                    tracing::warn!(host = shared.url.host_str(), %fault, "no OAuth token");
                    state.failed = Some((Instant::now(), fault.clone()));
                }
            }
            drop(state);
            sender.send_replace(Some(outcome));
        });
        flight
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("host", &self.shared.url.host_str()).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self) -> Result<Token, Fault> {
        let asked = Instant::now();
        let request = self
            .client
            .post(self.url.clone())
            .timeout(REQUEST_TIMEOUT)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::ACCEPT, "application/json")
            .form(&[("grant_type", "client_credentials"), ("scope", SCOPE)]);
        let response = request.send().await.map_err(told)?;
        match response.status() {
            StatusCode::OK => {}
            status @ (StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) => {
                return Err(format!("status {} (are id and secret right?)", status.as_u16()).into());
            }
            status => return Err(format!("status {}", status.as_u16()).into()),
        }
        let body = body(response, MAX_BODY).await?;
        let body = body.ok_or_else(|| format!("the answer is longer than {MAX_BODY} bytes"))?;
        Token::read(&body, asked).map_err(Into::into)
    }
}

/// RFC 6749 §2.3.1: id and secret are form-encoded before they are put together.
fn basic(settings: &config::OAuth) -> HeaderValue {
    const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_').remove(b' ');
    let encoded = |bytes: &[u8]| percent_encode(bytes, FORM).to_string().replace(' ', "+");
    let pair = format!("{}:{}", encoded(settings.client_id.as_bytes()), encoded(settings.client_secret.expose()));
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
    // Never an error: base64 is ASCII.
    let mut value = value.unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    #[test]
    fn id_and_secret_are_form_encoded() {
        let settings = config::OAuth {
            client_id: "a:b c".into(),
            client_secret: Secret::new("s/\u{f6}+*-._~"),
            token_url: "http://host/".parse().expect("a URL"),
        };
        let value = basic(&settings);
        assert!(value.is_sensitive());
        let text = value.to_str().expect("ASCII").strip_prefix("Basic ").expect("Basic");
        let pair = STANDARD.decode(text).expect("base64");
        assert_eq!(String::from_utf8_lossy(&pair), "a%3Ab+c:s%2F%C3%B6%2B*-._%7E");
    }
}
