//! One call to the API: sent, bounded, its body parsed; every failure a text that holds no secret.

use std::{fmt, time::Duration};

use http::{HeaderValue, Method, StatusCode};
use reqwest::{Client, RequestBuilder, Url};
use serde_json::Value;

pub(super) use crate::control::http::Fault;
use crate::{
    control::{
        SetupError,
        http::{body, client, told},
    },
    types::{Reason, SandboxId, Secret},
};

/// A sandbox's detail has a few KiB; one with much metadata may have many. Beyond this, in bytes, an
/// answer is refused.
const MAX_BODY: usize = 1 << 20;

/// The answer to one call.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Vec<u8>,
    oversize: bool,
}

/// A control API and the key to it.
pub(super) struct Api {
    client: Client,
    base: Url,
    key: HeaderValue,
}

impl Api {
    pub(super) fn new(url: &Url, key: &Secret) -> Result<Self, SetupError> {
        let mut base = url.clone();
        base.set_fragment(None);
        if base.cannot_be_a_base() || !matches!(base.scheme(), "http" | "https") {
            return Err(SetupError::Url);
        }
        let mut key = HeaderValue::from_bytes(key.expose()).map_err(|_| SetupError::ApiKey)?;
        key.set_sensitive(true);
        Ok(Self { client: client()?, base, key })
    }

    /// `GET /sandboxes/{id}`
    pub(super) async fn detail(&self, id: &SandboxId) -> Result<Answer, Fault> {
        self.call(self.request(Method::GET, id, None)).await
    }

    /// `POST /sandboxes/{id}/connect`, marked as caused by traffic, not by the owner.
    pub(super) async fn connect(&self, id: &SandboxId, timeout: Duration) -> Result<Answer, Fault> {
        let body = serde_json::json!({ "timeout": timeout.as_secs() });
        let request = self.request(Method::POST, id, Some("connect")).header("x-client-proxy-wake", "1").json(&body);
        self.call(request).await
    }

    fn request(&self, method: Method, id: &SandboxId, verb: Option<&str>) -> RequestBuilder {
        let mut url = self.base.clone();
        // Never an error: the constructor refused what has no path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["sandboxes", id.as_str()]).extend(verb);
        }
        self.client.request(method, url).header("x-api-key", &self.key).header(http::header::ACCEPT, "application/json")
    }

    async fn call(&self, request: RequestBuilder) -> Result<Answer, Fault> {
        let response = request.send().await.map_err(told)?;
        let status = response.status();
        let body = body(response, MAX_BODY).await?;
        Ok(Answer { status, oversize: body.is_none(), body: body.unwrap_or_default() })
    }

    /// The `message` of an error, fit to be shown to the API's user: bounded, without control
    /// characters, without the key in case it is echoed.
    pub(super) fn message(&self, answer: &Answer) -> Option<String> {
        const MAX_CHARS: usize = 500;
        let body = answer.json().ok()?;
        let text: String = body.get("message")?.as_str()?.chars().filter(|char| !char.is_control()).collect();
        let text = match self.key.to_str() {
            Ok(key) if !key.is_empty() => text.replace(key, "***"),
            _ => text,
        };
        let text: String = text.chars().take(MAX_CHARS).collect();
        (!text.trim().is_empty()).then_some(text)
    }
}

impl fmt::Debug for Api {
    /// Without the URL, which may hold credentials, and the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("host", &self.base.host_str()).finish_non_exhaustive()
    }
}

impl Answer {
    /// The body of a success.
    pub(super) fn json(&self) -> Result<Value, Fault> {
        if self.oversize {
            return Err(format!("the answer is longer than {MAX_BODY} bytes"));
        }
        // serde_json's texts name places and kinds, never content.
        serde_json::from_slice(&self.body).map_err(|error| format!("the answer is not JSON: {error}"))
    }

    /// What an error's body says was the reason that the sandbox is not there. A body that is no JSON object
    /// is not the API's: a gateway in front of it, or the wrong URL, says nothing of sandboxes.
    pub(super) fn reason(&self) -> Result<Reason, Fault> {
        let body = self.json().ok().filter(Value::is_object).ok_or_else(|| self.unexpected())?;
        Ok(match body.get("error_code").and_then(Value::as_str) {
            Some("killed") => Reason::Killed,
            Some("expired") => Reason::Expired,
            Some("filesystem_only") => Reason::FilesystemOnly,
            Some("auto_resume_off") => Reason::AutoResumeOff,
            _ => Reason::Unknown,
        })
    }

    /// What an operator reads of a status that is no answer.
    pub(super) fn unexpected(&self) -> Fault {
        let hint = match self.status.as_u16() {
            300..=399 => " (redirects are not followed: is the URL right?)",
            401 | 403 => " (is the API key right?)",
            429 => " (too many calls)",
            _ => "",
        };
        format!("status {}{hint}", self.status.as_u16())
    }
}
