//! Lists of sandboxes, filtered and in pages.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Json, extract::State, response::IntoResponse};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;

use super::{
    api::{Answer, Api},
    api_error::ApiError,
    heads::Asked,
    lifecycle::Phase,
    sandbox::Sandbox,
    schema,
};

const PAGE: usize = 100;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Filter {
    metadata: Option<String>,
    state: Option<String>,
    template: Option<String>,
    started_after: Option<String>,
    order: Option<String>,
    limit: Option<String>,
    next_token: Option<String>,
}

pub(super) async fn list_running(State(api): State<Arc<Api>>, Asked(filter): Asked<Filter>) -> Answer {
    let filter = Filter { state: Some("running".to_owned()), metadata: filter.metadata, ..Filter::default() };
    let (page, _) = filter.page(api.all().await, usize::MAX)?;
    Ok(Json(page).into_response())
}

pub(super) async fn list(State(api): State<Arc<Api>>, Asked(filter): Asked<Filter>) -> Answer {
    let limit = match filter.limit.as_deref().map(str::parse) {
        None => PAGE,
        Some(Ok(limit @ 1..=PAGE)) => limit,
        Some(_) => return Err(ApiError::bad_request("limit must be 1 to 100")),
    };
    let all = api.all().await;
    let running = all.iter().filter(|one| one.snapshot().is_running()).count();
    let (page, next) = filter.page(all, limit)?;
    let mut answer = Json(page).into_response();
    answer.headers_mut().insert("x-total-running", running.into());
    if let Some(next) = next {
        answer.headers_mut().insert("x-next-token", next.into());
    }
    Ok(answer)
}

impl Filter {
    /// One page of `all`, and the token of the next: the number of this page's last sandbox.
    fn page(&self, mut all: Vec<Arc<Sandbox>>, limit: usize) -> Result<(Vec<Value>, Option<u64>), ApiError> {
        let states: Vec<&str> = match self.state.as_deref().unwrap_or_default() {
            "" => vec!["running", "paused"],
            states => states.split(',').collect(),
        };
        if states.iter().any(|state| !["running", "paused"].contains(state)) {
            return Err(ApiError::bad_request("state may be running, paused, or both with a comma"));
        }
        let ascending = match self.order.as_deref() {
            None | Some("" | "desc") => false,
            Some("asc") => true,
            Some(_) => return Err(ApiError::bad_request("order may be asc or desc")),
        };
        let after: Option<u64> = match self.next_token.as_deref() {
            None | Some("") => None,
            Some(token) => {
                let token = token.parse().map_err(|_| ApiError::bad_request("no such nextToken"))?;
                Some(token)
            }
        };
        let since = match self.started_after.as_deref() {
            None | Some("") => None,
            Some(time) => Some(moment(time).ok_or_else(|| ApiError::bad_request("startedAfter is no RFC 3339 time"))?),
        };
        let wanted = self.metadata.as_deref().map(pairs).unwrap_or_default();
        if ascending {
            all.reverse();
        }
        all.retain(|sandbox| {
            let (facts, now) = (&sandbox.facts, sandbox.snapshot());
            let state = if now.is_running() { "running" } else { "paused" };
            !matches!(now.phase, Phase::Gone(_))
                && states.contains(&state)
                && self.template.as_ref().is_none_or(|template| *template == facts.template)
                && since.is_none_or(|since| now.started > since)
                && wanted.iter().all(|(key, value)| facts.metadata.get(key) == Some(value))
                && after.is_none_or(|after| if ascending { facts.number > after } else { facts.number < after })
        });
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(|last| last.facts.number);
        Ok((all.iter().map(|sandbox| schema::listed(sandbox)).collect(), next))
    }
}

/// RFC 3339 with any offset, as SDKs send it; a `+` that was not encoded has become a space.
fn moment(text: &str) -> Option<SystemTime> {
    let text = text.replace(' ', "+");
    let at = text.rfind(['+', '-']).filter(|at| *at > "2026-01-01T".len());
    let (Some(at), true) = (at, !text.ends_with('Z')) else { return humantime::parse_rfc3339(&text).ok() };
    let (time, offset) = text.split_at(at);
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let seconds = hours.parse::<u64>().ok()?.checked_mul(60)?.checked_add(minutes.parse().ok()?)?.checked_mul(60)?;
    let (time, offset) = (humantime::parse_rfc3339(&format!("{time}Z")).ok()?, Duration::from_secs(seconds));
    if text.as_bytes().get(at) == Some(&b'+') { time.checked_sub(offset) } else { time.checked_add(offset) }
}

/// SDKs encode each key and value, the query string made of them, and that as a parameter, whose coding is off here.
fn pairs(query: &str) -> Vec<(String, String)> {
    let query = query.replace('+', " ");
    let query = percent_decode_str(&query).decode_utf8_lossy();
    let url = reqwest::Url::parse("http://localhost/").map(|mut url| {
        url.set_query(Some(&query));
        url
    });
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_offsets() {
        let want = humantime::parse_rfc3339("2026-01-02T00:30:00.5Z").ok();
        for same in ["2026-01-02T00:30:00.500Z", "2026-01-02T02:30:00.5+02:00", "2026-01-01T23:00:00.500000-01:30"] {
            assert_eq!(moment(same), want, "{same}");
            assert_eq!(moment(&same.replace('+', " ")), want, "{same}");
        }
        for bad in ["", "x", "2026-01-02", "2026-01-02T00:30:00+x:00", "2026-01-02T00:30:00+99999999999999999999:00"] {
            assert_eq!(moment(bad), None, "{bad}");
        }
    }

    #[test]
    fn metadata_is_decoded_twice_more() {
        let want = vec![("k 1".to_owned(), "v&%+=é".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(pairs("k%25201=v%2526%2525%252B%253D%25C3%25A9&b="), want);
        assert_eq!(pairs("user=abc"), [("user".to_owned(), "abc".to_owned())]);
    }
}
