//! What a request says of waking and waiting: `X-Sandbox-Wake`, and the deadlines of gRPC and Connect.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use crate::forward::headers::{Marks, WAKE};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CONNECT_TIMEOUT: HeaderName = HeaderName::from_static("connect-timeout-ms");

/// What nobody can read is as if it were not there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wish {
    /// It wakes nothing.
    pub(crate) never: bool,
    /// It does not wait for a wake.
    pub(crate) at_once: bool,
    /// It is held no longer.
    pub(crate) longest: Option<Duration>,
}

impl Wish {
    pub(crate) fn of(headers: &HeaderMap, marks: Marks) -> Self {
        let mut wish = Self::default();
        if !marks.has_wishes() {
            return wish;
        }
        let words = headers.get_all(WAKE).iter().filter_map(|value| value.to_str().ok());
        for word in words.flat_map(|value| value.split(',')).map(str::trim) {
            if word.eq_ignore_ascii_case("never") {
                wish.never = true;
            } else if word.eq_ignore_ascii_case("async") {
                wish.at_once = true;
            } else if let Some((name, seconds)) = word.split_once('=')
                && name.trim_end().eq_ignore_ascii_case("wait")
            {
                wish.shorten(wait(seconds.trim_start()));
            }
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        wish.shorten(text(GRPC_TIMEOUT).and_then(grpc_timeout));
        wish.shorten(text(CONNECT_TIMEOUT).and_then(connect_timeout));
        wish
    }

    fn shorten(&mut self, to: Option<Duration>) {
        self.longest = self.longest.into_iter().chain(to).min();
    }
}

/// Seconds, with a fraction or without.
fn wait(text: &str) -> Option<Duration> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse().ok().filter(|_| plain)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// At most eight digits and a unit (the specification "gRPC over HTTP2", `Timeout`).
fn grpc_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let number = digits(text.strip_suffix(unit)?, 8)?;
    Some(match unit {
        'H' => Duration::from_hours(number),
        'M' => Duration::from_mins(number),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// At most ten digits (the Connect protocol, `Connect-Timeout-Ms`).
fn connect_timeout(text: &str) -> Option<Duration> {
    digits(text, 10).map(Duration::from_millis)
}

fn digits(text: &str, most: usize) -> Option<u64> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(fields: &[(&'static str, &'static str)]) -> Wish {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().expect("a value"));
        }
        Wish::of(&headers, Marks::of(&headers))
    }

    #[test]
    fn what_a_caller_wishes() {
        let (never, at_once) = (true, true);
        let ms = |ms| Some(Duration::from_millis(ms));
        for (fields, want) in [
            (&[][..], Wish::default()),
            (&[("x-sandbox-wake", "never")], Wish { never, ..Wish::default() }),
            (&[("x-sandbox-wake", " Async ")], Wish { at_once, ..Wish::default() }),
            (&[("x-sandbox-wake", "wait=5")], Wish { longest: ms(5000), ..Wish::default() }),
            (&[("x-sandbox-wake", "wait = 0.25")], Wish { longest: ms(250), ..Wish::default() }),
            (&[("x-sandbox-wake", "wait=0")], Wish { longest: ms(0), ..Wish::default() }),
            (&[("x-sandbox-wake", "async, wait=1")], Wish { at_once, longest: ms(1000), ..Wish::default() }),
            (
                &[("x-sandbox-wake", "wait=9"), ("x-sandbox-wake", "wait=3")],
                Wish { longest: ms(3000), ..Wish::default() },
            ),
            (&[("grpc-timeout", "2S")], Wish { longest: ms(2000), ..Wish::default() }),
            (
                &[("grpc-timeout", "99999999u")],
                Wish { longest: ms(99_999).map(|t| t + Duration::from_micros(999)), ..Wish::default() },
            ),
            (&[("connect-timeout-ms", "1500")], Wish { longest: ms(1500), ..Wish::default() }),
            (
                &[("connect-timeout-ms", "1500"), ("x-sandbox-wake", "wait=1"), ("grpc-timeout", "1M")],
                Wish { longest: ms(1000), ..Wish::default() },
            ),
        ] {
            assert_eq!(wish(fields), want, "{fields:?}");
        }
    }

    #[test]
    fn what_nobody_can_read_is_no_wish() {
        for (name, value) in [
            ("x-sandbox-wake", ""),
            ("x-sandbox-wake", "nevermore"),
            ("x-sandbox-wake", "wait"),
            ("x-sandbox-wake", "wait="),
            ("x-sandbox-wake", "wait=-1"),
            ("x-sandbox-wake", "wait=1e9"),
            ("x-sandbox-wake", "wait=inf"),
            ("x-sandbox-wake", "wait=1.2.3"),
            ("x-sandbox-wake", "wait=999999999999999999999999999999999999"),
            ("grpc-timeout", "5"),
            ("grpc-timeout", "S"),
            ("grpc-timeout", "123456789S"),
            ("grpc-timeout", "-1S"),
            ("grpc-timeout", "1x"),
            ("grpc-timeout", "1\u{e4}"),
            ("connect-timeout-ms", "12345678901"),
            ("connect-timeout-ms", "1.5"),
            ("connect-timeout-ms", ""),
        ] {
            assert_eq!(wish(&[(name, value)]), Wish::default(), "{name}: {value}");
        }
    }
}
