//! What the headers of a call say beside its message.

use std::{fmt::Display, time::Duration};

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::time::Instant;

use super::Error;

/// envd's, where the caller asks for nothing else.
const KEEPALIVE: Duration = Duration::from_secs(90);

#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// From `Connect-Timeout-Ms`; none without it.
    pub(crate) deadline: Option<Instant>,
    /// The longest silence on a stream that its caller wants.
    pub(crate) keepalive: Duration,
    /// Whom the caller wants to act as: the name in `Authorization: Basic`. It proves nothing.
    pub(crate) user: Option<String>,
}

impl Call {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Error> {
        if let Some(version) = headers.get("connect-protocol-version")
            && version != "1"
        {
            return Err(Error::malformed("connect-protocol-version must be \"1\""));
        }
        let timeout = number(headers, "connect-timeout-ms")?.map(Duration::from_millis);
        let keepalive = number(headers, "keepalive-ping-interval")?.map(Duration::from_secs);
        Ok(Self {
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            keepalive: keepalive.unwrap_or(KEEPALIVE),
            user: user(headers),
        })
    }
}

/// At most ten digits, as the protocol has it. Nought is as good as nothing.
fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Error> {
    let Some(text) = headers.get(name) else {
        return Ok(None);
    };
    let bad = |why: &dyn Display| Error::malformed(format!("{name}: {why}"));
    let text = text.to_str().map_err(|error| bad(&error))?;
    if text.len() > 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad(&"up to ten digits are allowed"));
    }
    let number: u64 = text.parse().map_err(|error: std::num::ParseIntError| bad(&error))?;
    Ok((number > 0).then_some(number))
}

/// Without a name it is as if nothing were there: old SDKs send `Basic` with an empty one.
fn user(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, coded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(coded.trim()).ok()?).ok()?;
    let name = text.split_once(':').map_or(text.as_str(), |(name, _)| name);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn headers_say_deadline_keepalive_and_user() {
        let call = Call::read(&HeaderMap::new()).expect("a call");
        assert_eq!((call.deadline, call.keepalive, call.user), (None, KEEPALIVE, None));
        let call = Call::read(&headers(&[
            ("connect-protocol-version", "1"),
            ("connect-timeout-ms", "1500"),
            ("keepalive-ping-interval", "50"),
            ("authorization", "Basic cm9vdDo="),
        ]))
        .expect("a call");
        assert_eq!(call.deadline, Some(Instant::now() + Duration::from_millis(1500)));
        assert_eq!((call.keepalive, call.user.as_deref()), (Duration::from_secs(50), Some("root")));
        let call = Call::read(&headers(&[("connect-timeout-ms", "0"), ("authorization", "Basic Og==")]));
        let call = call.expect("a call");
        assert_eq!((call.deadline, call.user), (None, None));
    }

    #[test]
    fn headers_that_mean_nothing_are_refused() {
        for pair in [
            ("connect-protocol-version", "2"),
            ("connect-timeout-ms", "12345678901"),
            ("connect-timeout-ms", "-1"),
            ("connect-timeout-ms", ""),
            ("keepalive-ping-interval", "1.5"),
        ] {
            assert!(Call::read(&headers(&[pair])).is_err(), "{pair:?}");
        }
    }
}
