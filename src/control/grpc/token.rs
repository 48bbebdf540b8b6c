//! An access token, read from a token endpoint's answer (RFC 6749 §5.1). Pure.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tonic::metadata::AsciiMetadataValue;

/// How long a token is used whose server does not say it.
const DEFAULT_TTL: Duration = Duration::from_mins(5);
/// No token is used for longer, whatever its server says.
const MAX_TTL: Duration = Duration::from_hours(24);
/// A new one is asked for that long ahead of the end, or at four fifths of a short life.
const AHEAD: Duration = Duration::from_mins(1);

/// A token and its times.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// `Bearer …`, sensitive: its `Debug` shows nothing.
    bearer: AsciiMetadataValue,
    /// From then on another is asked for.
    pub(super) renew: Instant,
    /// Until then it is used.
    pub(super) end: Instant,
}

const BEARER: &str = "Bearer ";

impl Token {
    /// Reads an answer to a request that was sent at `asked`.
    pub(super) fn read(body: &[u8], asked: Instant) -> Result<Self, &'static str> {
        let body: Value = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
        let token = body.get("access_token").and_then(Value::as_str).ok_or("the answer has no access_token")?;
        // RFC 6750 §2.1: `b64token`. Anything else would be another header, or none.
        let is_legal =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
        if token.is_empty() || !token.bytes().all(is_legal) {
            return Err("the access_token is none (RFC 6750 §2.1)");
        }
        match body.get("token_type") {
            None => {}
            Some(Value::String(kind)) if kind.eq_ignore_ascii_case("bearer") => {}
            // RFC 6749 §7.1: a type that is not understood must not be used.
            Some(_) => return Err("the token_type is not Bearer"),
        }
        let mut bearer =
            AsciiMetadataValue::try_from(format!("{BEARER}{token}")).map_err(|_| "no header can carry it")?;
        bearer.set_sensitive(true);
        let ttl = ttl(body.get("expires_in"));
        Ok(Self { bearer, renew: asked + ttl.saturating_sub(AHEAD.min(ttl / 5)), end: asked + ttl })
    }

    /// The value of `authorization`.
    pub(super) fn bearer(&self) -> &AsciiMetadataValue {
        &self.bearer
    }

    /// The token alone.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bearer.as_bytes()[BEARER.len()..]
    }

    /// Whether both are the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.bearer == other.bearer
    }
}

/// Seconds, which some servers write as a text.
fn ttl(told: Option<&Value>) -> Duration {
    let seconds = match told {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    let told = seconds.filter(|seconds| *seconds > 0.0).map(Duration::try_from_secs_f64);
    told.map_or(DEFAULT_TTL, |told| told.map_or(MAX_TTL, |told| told.min(MAX_TTL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<(u64, u64), &'static str> {
        let asked = Instant::now();
        let token = Token::read(body.as_bytes(), asked)?;
        assert!(!format!("{token:?}").contains("abc"), "{token:?}");
        Ok(((token.renew - asked).as_secs(), (token.end - asked).as_secs()))
    }

    #[test]
    fn a_token_is_renewed_ahead_of_its_end() {
        for (expires, times) in [
            ("3600", (3540, 3600)),
            ("300", (240, 300)),
            ("100", (80, 100)),
            ("5", (4, 5)),
            ("\"3600\"", (3540, 3600)),
            ("90000000000000000000", (86340, 86400)),
            ("1e300", (86340, 86400)),
            ("0", (240, 300)),
            ("-5", (240, 300)),
            ("null", (240, 300)),
            ("\"soon\"", (240, 300)),
            ("\"NaN\"", (240, 300)),
        ] {
            let body = format!(r#"{{"access_token":"abc","token_type":"bearer","expires_in":{expires}}}"#);
            assert_eq!(read(&body), Ok(times), "{expires}");
        }
        assert_eq!(read(r#"{"access_token":"abc"}"#), Ok((240, 300)));
    }

    #[test]
    fn what_is_no_bearer_token_is_refused() {
        for body in [
            "",
            "abc",
            "[]",
            "{}",
            r#"{"access_token":null}"#,
            r#"{"access_token":5}"#,
            r#"{"access_token":""}"#,
            r#"{"access_token":"a b"}"#,
            r#"{"access_token":"a\nb"}"#,
            r#"{"access_token":"a\u0000b"}"#,
            r#"{"access_token":"\u00f6"}"#,
            r#"{"access_token":"abc","token_type":"mac"}"#,
            r#"{"access_token":"abc","token_type":null}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
