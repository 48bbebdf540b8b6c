//! A part of a file, and a file that its caller has already (RFC 9110 §13 and §14): by the time of its last change, as
//! envd's, which makes no tags.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{
    HeaderMap, HeaderName, Method,
    header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE},
};
use httpdate::HttpDate;

/// What a request to read wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Whole,
    /// So many bytes from there on, at least one.
    Part {
        first: u64,
        length: u64,
    },
    /// None of its bytes: 416.
    Beyond,
    /// Nothing, it is as the caller has it: 304.
    Had,
    /// Nothing, it is not as the caller has it: 412.
    Changed,
}

/// `Last-Modified`. It counts seconds: within one that is not over, the same time could mean two contents (RFC 9110
/// §8.8.2.2). Nor is one that is still to come a time of change.
pub(super) fn last_modified(modified: SystemTime, now: SystemTime) -> Option<HttpDate> {
    let second = UNIX_EPOCH + Duration::from_secs(modified.duration_since(UNIX_EPOCH).ok()?.as_secs());
    let is_over = now.duration_since(second).is_ok_and(|since| since > Duration::from_secs(1));
    is_over.then(|| second.into())
}

/// In the order of RFC 9110 §13.2.2.
pub(super) fn wanted(
    method: &Method,
    headers: &HeaderMap,
    length: u64,
    modified: SystemTime,
    last: Option<HttpDate>,
) -> Wanted {
    let date = |name: HeaderName| headers.get(name)?.to_str().ok()?.parse::<HttpDate>().ok();
    // Also by a time that is not told: what was changed just now is not what the caller had. Dates are whole seconds.
    let is_later = |since| modified >= SystemTime::from(since) + Duration::from_secs(1);
    let changed_since = |name| date(name).is_some_and(is_later);
    let had_since = |name| last.zip(date(name)).is_some_and(|(last, since)| last <= since);
    if headers.get(IF_MATCH).map_or_else(|| changed_since(IF_UNMODIFIED_SINCE), |tags| tags != "*") {
        return Wanted::Changed;
    }
    if headers.get(IF_NONE_MATCH).map_or_else(|| had_since(IF_MODIFIED_SINCE), |tags| tags == "*") {
        return Wanted::Had;
    }
    let mut ranges = headers.get_all(RANGE).iter();
    let (&Method::GET, Some(range), None) = (method, ranges.next(), ranges.next()) else {
        return Wanted::Whole;
    };
    if headers.contains_key(IF_RANGE) && (last.is_none() || date(IF_RANGE) != last) {
        return Wanted::Whole;
    }
    range.to_str().ok().and_then(|range| part(range, length)).unwrap_or(Wanted::Whole)
}

/// `None` for what is no range, or more than one: whoever asks so gets all of it (RFC 9110 §14.2).
fn part(range: &str, length: u64) -> Option<Wanted> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, end) = match (first, last) {
        ("", count) => (length.saturating_sub(number(count)?), length),
        (first, "") => (number(first)?, length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            (first, length.min(last.saturating_add(1)))
        }
    };
    Some(if first < end { Wanted::Part { first, length: end - first } } else { Wanted::Beyond })
}

/// One that no file is long enough for is as good as the largest.
fn number(digits: &str) -> Option<u64> {
    let is_one = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_part_or_not_heeded() {
        let part = |first, length| Some(Wanted::Part { first, length });
        let beyond = Some(Wanted::Beyond);
        for (range, length, want) in [
            ("bytes=0-", 10, part(0, 10)),
            ("Bytes=2-4", 10, part(2, 3)),
            ("bytes= 9-9 ", 10, part(9, 1)),
            ("bytes=5-100", 10, part(5, 5)),
            ("bytes=5-18446744073709551615", 10, part(5, 5)),
            ("bytes=5-99999999999999999999999", 10, part(5, 5)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=-100", 10, part(0, 10)),
            ("bytes=-99999999999999999999999", 10, part(0, 10)),
            ("bytes=-0", 10, beyond),
            ("bytes=10-", 10, beyond),
            ("bytes=10-12", 10, beyond),
            ("bytes=18446744073709551615-18446744073709551615", 10, beyond),
            ("bytes=99999999999999999999999-", 10, beyond),
            ("bytes=0-", 0, beyond),
            ("bytes=-5", 0, beyond),
            ("bytes=0-18446744073709551615", u64::MAX, part(0, u64::MAX)),
            ("bytes=4-2", 10, None),
            ("bytes=-", 10, None),
            ("bytes=", 10, None),
            ("bytes", 10, None),
            ("bytes=--1", 10, None),
            ("bytes=+1-2", 10, None),
            ("bytes=1-2,4-5", 10, None),
            ("bytes=0-,0-,0-", 10, None),
            ("bytes=a-b", 10, None),
            ("items=0-1", 10, None),
        ] {
            assert_eq!(super::part(range, length), want, "{range} of {length}");
        }
    }

    #[test]
    fn a_time_of_change_means_one_content() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let told = |modified, now| last_modified(modified, now).map(|date| date.to_string());
        for (modified, now, is_told) in [
            (at(5900), at(6000), false),
            (at(5900), at(6001), true),
            (at(5000), at(5999), false),
            (at(9000), at(5000), false),
            (UNIX_EPOCH - Duration::from_secs(1), at(5000), false),
            // Beyond all dates that can be written.
            (at(1 << 60), at(5000), false),
        ] {
            assert_eq!(told(modified, now).is_some(), is_told, "{modified:?} at {now:?}");
        }
        assert_eq!(told(at(5900), at(9000)).as_deref(), Some("Thu, 01 Jan 1970 00:00:05 GMT"));
    }
}
