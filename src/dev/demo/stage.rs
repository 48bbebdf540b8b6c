//! What the demo asks and how it prints.

use std::{
    io::{IsTerminal as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::dev::{clock::micros, options::Addresses, schema::ProcessView};

const LIMIT: Duration = Duration::from_mins(1);

pub(super) struct Stage {
    client: Client,
    at: Addresses,
    key: String,
    paint: bool,
}

/// What the playground tells of a sandbox beyond E2B's API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inside {
    pub(super) processes: Vec<ProcessView>,
    pub(super) wakes: u64,
    pub(super) wake_calls: Vec<Wake>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wake {
    pub(super) asked_at: u64,
    pub(super) done_at: Option<u64>,
}

/// An answer to a request through the proxy.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) text: String,
    pub(super) timing: Option<String>,
    /// Microseconds since 1970.
    pub(super) sent: u64,
    pub(super) answered: u64,
}

impl Answer {
    /// The number that the application answered with.
    pub(super) fn count(&self) -> Result<u64> {
        ensure!(self.status == StatusCode::OK, "the proxy answered {}: {}", self.status, self.text.trim());
        self.text.trim().parse().with_context(|| format!("the answer is no number: {:?}", self.text))
    }
}

impl Stage {
    /// The proxy runs already, so the provider of TLS that every client wants is there.
    pub(super) fn new(at: &Addresses, key: &str) -> Result<Self> {
        Ok(Self {
            client: Client::builder().no_proxy().timeout(LIMIT).build()?,
            at: *at,
            key: key.to_owned(),
            paint: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        })
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        let answer = self.api("DELETE", &format!("/sandboxes/{id}"), None).await?;
        expect(answer, StatusCode::NO_CONTENT).await?;
        Ok(())
    }

    pub(super) async fn inside(&self, id: &str) -> Result<Inside> {
        let answer = self.api("GET", &format!("/playground/sandboxes/{id}"), None).await?;
        Ok(expect(answer, StatusCode::OK).await?.json().await?)
    }

    pub(super) async fn wakes_metric(&self) -> Result<u64> {
        let url = format!("http://{}/metrics", self.at.health);
        let answer = self.client.get(url).send().await.context("no metrics")?;
        sum_of(&expect(answer, StatusCode::OK).await?.text().await?, "client_proxy_wakes_total")
    }

    pub(super) async fn api(&self, method: &str, path: &str, body: Option<Value>) -> Result<Response> {
        let url = format!("http://{}{path}", self.at.api);
        let request = self.client.request(method.parse()?, url).header("X-API-KEY", &self.key);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        request.send().await.with_context(|| format!("{method} {path}"))
    }

    pub(super) fn request(&self, id: &str) -> RequestBuilder {
        self.client
            .get(format!("http://{}/", self.at.proxy))
            .header("E2b-Sandbox-Id", id)
            .header("E2b-Sandbox-Port", "8000")
    }

    pub(super) async fn ask(&self, id: &str) -> Result<Answer> {
        send(self.request(id)).await
    }

    pub(super) fn title(&self, number: u32, text: &str) {
        say!("\n  {}  {}", self.bold(&number.to_string()), self.bold(text));
    }

    pub(super) fn line(&self, did: &str, status: &str, what: &str, took: u64) {
        let took = format!("{:>9}", millis(took));
        say!("     {} {did:<24} {status}  {what:<45} {}", self.good("✓"), self.dim(&took));
    }

    pub(super) fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    pub(super) fn dim(&self, text: &str) -> String {
        self.painted("2", text)
    }

    pub(super) fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    pub(super) fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.paint { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

pub(super) async fn send(request: RequestBuilder) -> Result<Answer> {
    let sent = micros();
    let response = request.send().await.context("no answer from the proxy")?;
    let status = response.status();
    let timing = response.headers().get("server-timing");
    let timing = timing.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = response.text().await.context("the proxy's answer was cut")?;
    Ok(Answer { status, text, timing, sent, answered: micros() })
}

pub(super) async fn expect(answer: Response, want: StatusCode) -> Result<Response> {
    let (status, path) = (answer.status(), answer.url().path().to_owned());
    if status != want {
        bail!("{path}: expected {want}, got {status}: {}", answer.text().await.unwrap_or_default());
    }
    Ok(answer)
}

pub(super) fn moment(at: u64, what: &str) {
    say!("     {:>12}  {what}", millis(at));
}

pub(super) fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

/// The sum over all labels of a counter in Prometheus' text format; 0 where it has no line yet.
fn sum_of(metrics: &str, name: &str) -> Result<u64> {
    let mut sum = 0;
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        if !rest.starts_with(['{', ' ']) {
            continue;
        }
        let value = rest.rsplit(' ').next().unwrap_or_default();
        let value: u64 = value.parse().with_context(|| format!("{name} is no whole number: {value:?}"))?;
        sum += value;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let text = "# TYPE w_total counter\nw_total{outcome=\"a b\"} 2\nw_total{outcome=\"c\"} 3\nw_total_other 9\n";
        assert_eq!(sum_of(text, "w_total").ok(), Some(5));
        assert_eq!(sum_of("", "w_total").ok(), Some(0));
        assert!(sum_of("w_total x", "w_total").is_err());
    }

    #[test]
    fn milliseconds_have_one_decimal() {
        assert_eq!(millis(12_345), "12.3 ms");
        assert_eq!(millis(0), "0.0 ms");
    }
}
