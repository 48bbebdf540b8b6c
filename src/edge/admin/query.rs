//! The parameters of a page: each at most once, each valid, none that the page does not know.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};

use super::refusal::Refused;

/// Those that nobody has taken yet.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes the parameter, if it is there. `right` says what its value has to be.
    pub(super) fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
        right: &str,
    ) -> Result<Option<T>, Refused> {
        let Some(at) = self.0.iter().position(|(given, _)| given == name) else { return Ok(None) };
        let (_, value) = self.0.swap_remove(at);
        let wrong = || Refused::bad_parameter(format!("{name} has to be {right}"));
        read(&value).map(Some).ok_or_else(wrong)
    }

    /// The largest number of results; `default` if nobody said.
    pub(super) fn limit(&mut self, default: usize) -> Result<usize, Refused> {
        const MAX: usize = 1000;
        let read = |value: &str| value.parse().ok().filter(|limit| (1..=MAX).contains(limit));
        Ok(self.take("limit", read, &format!("a number from 1 to {MAX}"))?.unwrap_or(default))
    }

    /// Nothing may be left. `known` lists what the page takes.
    pub(super) fn finish(self, known: &str) -> Result<(), Refused> {
        let wrong = || Refused::bad_parameter(format!("the parameters, each at most once, are {known}"));
        self.0.is_empty().then_some(()).ok_or_else(wrong)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let unreadable = |_| Refused::bad_parameter("the query has to be name=value pairs joined by &");
        Query::try_from_uri(&parts.uri).map(|Query(pairs)| Self(pairs)).map_err(unreadable)
    }
}
