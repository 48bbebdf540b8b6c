//! `--demo`: the story of a sandbox that sleeps, told by doing it. Everything goes over HTTP, as a user's
//! requests would; the first thing that is not as told is an error.

use std::{
    collections::BTreeSet,
    io::{IsTerminal as _, stdout},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{options::Addresses, sandbox::micros, schema::ProcessView};

const CROWD: u64 = 50;
const LIMIT: Duration = Duration::from_secs(60);

/// Plays the story against a playground and its proxy and prints it. Fails where a step was not as told.
pub async fn play(at: &Addresses, api_key: &str) -> Result<()> {
    // Nothing here speaks TLS; the client is not made without a provider all the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(LIMIT).build()?;
    let stage = Stage {
        client,
        at: *at,
        key: api_key.to_owned(),
        paint: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    };
    let outcome = stage.play().await;
    if let Err(error) = &outcome {
        println!("\n  {}\n", stage.bad(&format!("Not as told: {error:#}")));
    }
    outcome
}

struct Stage {
    client: Client,
    at: Addresses,
    key: String,
    paint: bool,
}

/// What the playground tells of a sandbox beyond E2B's API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inside {
    processes: Vec<ProcessView>,
    wakes: u64,
    wake_calls: Vec<Wake>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wake {
    asked_at: u64,
    done_at: Option<u64>,
}

/// An answer to a request through the proxy.
struct Answer {
    status: StatusCode,
    text: String,
    timing: Option<String>,
    /// Microseconds since 1970.
    sent: u64,
    answered: u64,
}

impl Answer {
    /// The number that the application answered with.
    fn count(&self) -> Result<u64> {
        ensure!(self.status == StatusCode::OK, "the proxy answered {}: {}", self.status, self.text.trim());
        self.text.trim().parse().with_context(|| format!("the answer is no number: {:?}", self.text))
    }
}

impl Stage {
    async fn play(&self) -> Result<()> {
        println!("\n  {}", self.bold("client-proxy: a sandbox that sleeps when nobody needs it"));
        println!("  {}", self.dim("Real processes of this machine; everything below is measured while you look."));

        self.title(1, "A sandbox that traffic may wake, running a small web application");
        let sleeper = self.create(true).await?;

        self.title(2, "Two requests through the proxy; the application counts them in its memory");
        for want in 1..=2 {
            let answer = self.ask(&sleeper).await?;
            let count = answer.count()?;
            ensure!(count == want, "expected the count {want}, got {count}");
            self.line("GET /", "200", &format!("count {count}"), answer.answered - answer.sent);
        }

        self.title(3, "Pause: every process of the sandbox is stopped, nothing is lost");
        self.pause(&sleeper).await?;

        self.title(4, "One request: it is held, the sandbox wakes, the count goes on");
        self.wake_by_one(&sleeper).await?;

        self.title(5, "A sandbox whose owner did not allow that stays asleep");
        self.stays_asleep().await?;

        self.title(6, "Fifty requests at once to a sleeping sandbox cost one wake");
        self.pause(&sleeper).await?;
        self.wake_by_many(&sleeper).await?;

        self.delete(&sleeper).await?;
        println!("\n  {}\n", self.good("Every step was as told."));
        Ok(())
    }

    async fn create(&self, auto_resume: bool) -> Result<String> {
        let body = json!({
            "templateID": "counter",
            "timeout": 300,
            "autoPause": true,
            "autoResume": { "enabled": auto_resume },
        });
        let begun = micros();
        let answer = self.api("POST", "/v2/sandboxes", Some(body)).await?;
        let sandbox: Value = expect(answer, StatusCode::CREATED).await?.json().await?;
        let id = sandbox["sandboxID"].as_str().context("the answer names no sandbox")?.to_owned();
        let what = format!("{id}  autoResume {auto_resume}");
        self.line("POST /v2/sandboxes", "201", &what, micros() - begun);
        Ok(id)
    }

    async fn pause(&self, id: &str) -> Result<()> {
        let begun = micros();
        let answer = self.api("POST", &format!("/sandboxes/{id}/pause"), None).await?;
        expect(answer, StatusCode::NO_CONTENT).await?;
        self.line("POST /sandboxes/…/pause", "204", "paused", micros() - begun);
        self.show_stopped(id).await
    }

    async fn show_stopped(&self, id: &str) -> Result<()> {
        let inside = self.inside(id).await?;
        ensure!(inside.processes.len() >= 2, "the sandbox has lost its processes");
        for process in &inside.processes {
            let ProcessView { pid, name, state } = process;
            ensure!(*state == 'T', "process {pid} ({name}) is in state {state}, not stopped (T)");
            println!("       /proc/{pid}/stat  {name:<14} state T  {}", self.dim("(stopped)"));
        }
        Ok(())
    }

    async fn wake_by_one(&self, id: &str) -> Result<()> {
        let before = self.inside(id).await?.wakes;
        let answer = self.ask(id).await?;
        let count = answer.count()?;
        ensure!(count == 3, "the memory did not survive: expected the count 3, got {count}");
        let inside = self.inside(id).await?;
        let wakes = inside.wakes - before;
        ensure!(wakes == 1, "one request cost {wakes} wakes");
        let wake = inside.wake_calls.last().context("the wake was not noted")?;
        let done = wake.done_at.context("the wake did not end well")?;
        let in_order = answer.sent <= wake.asked_at && wake.asked_at <= done && done <= answer.answered;
        ensure!(in_order, "the answer did not wait for the wake");
        self.moment(0, "request sent; it waits in the proxy");
        self.moment(wake.asked_at - answer.sent, "the proxy asks the control plane for a wake");
        self.moment(done - answer.sent, "the sandbox runs again");
        let timing = answer.timing.map(|timing| format!("   Server-Timing: {timing}"));
        let timing = self.dim(&timing.unwrap_or_default());
        self.moment(answer.answered - answer.sent, &format!("answer 200, count {count}{timing}"));
        Ok(())
    }

    async fn stays_asleep(&self) -> Result<()> {
        let id = self.create(false).await?;
        self.pause(&id).await?;
        let answer = self.ask(&id).await?;
        let status = answer.status;
        ensure!(status == StatusCode::BAD_GATEWAY, "expected 502, the proxy answered {status}");
        let body: Value = serde_json::from_str(&answer.text).context("the 502 is no JSON")?;
        let error = body["error"].as_str().unwrap_or_default();
        let reason = body["reason"].as_str().unwrap_or_default();
        ensure!(
            error == "sandbox_not_found" && reason == "auto_resume_off",
            "expected sandbox_not_found, auto_resume_off; got {error:?}, {reason:?}"
        );
        let what = format!("{error}: {reason}");
        self.line("GET /", "502", &what, answer.answered - answer.sent);
        self.show_stopped(&id).await?;
        self.delete(&id).await
    }

    async fn wake_by_many(&self, id: &str) -> Result<()> {
        let (before, metric_before) = (self.inside(id).await?.wakes, self.wakes_metric().await?);
        let begun = Instant::now();
        let mut crowd = tokio::task::JoinSet::new();
        for _ in 0..CROWD {
            let request = self.request(id);
            crowd.spawn(async move { send(request).await });
        }
        let mut counts = BTreeSet::new();
        while let Some(answer) = crowd.join_next().await {
            counts.insert(answer??.count()?);
        }
        let took = begun.elapsed();
        let want: BTreeSet<u64> = (4..4 + CROWD).collect();
        ensure!(counts == want, "the counts are not 4 to {}, each once: {counts:?}", 3 + CROWD);
        let wakes = self.inside(id).await?.wakes - before;
        ensure!(wakes == 1, "{CROWD} requests cost {wakes} wakes");
        let metric = self.wakes_metric().await? - metric_before;
        ensure!(metric == 1, "client_proxy_wakes_total rose by {metric}, not by 1");
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let what = format!("counts 4 to {}, each once", 3 + CROWD);
        self.line(&format!("{CROWD} × GET /"), "200", &what, took);
        println!("       wake calls at the control plane: {}", self.bold(&wakes.to_string()));
        println!("       client_proxy_wakes_total:        {}", self.bold(&format!("+{metric}")));
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<()> {
        let answer = self.api("DELETE", &format!("/sandboxes/{id}"), None).await?;
        expect(answer, StatusCode::NO_CONTENT).await?;
        Ok(())
    }

    async fn inside(&self, id: &str) -> Result<Inside> {
        let answer = self.api("GET", &format!("/playground/sandboxes/{id}"), None).await?;
        Ok(expect(answer, StatusCode::OK).await?.json().await?)
    }

    async fn wakes_metric(&self) -> Result<u64> {
        let url = format!("http://{}/metrics", self.at.health);
        let answer = self.client.get(url).send().await.context("no metrics")?;
        sum_of(&expect(answer, StatusCode::OK).await?.text().await?, "client_proxy_wakes_total")
    }

    async fn api(&self, method: &str, path: &str, body: Option<Value>) -> Result<Response> {
        let url = format!("http://{}{path}", self.at.api);
        let request = self.client.request(method.parse()?, url).header("X-API-KEY", &self.key);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        request.send().await.with_context(|| format!("{method} {path}"))
    }

    fn request(&self, id: &str) -> RequestBuilder {
        self.client
            .get(format!("http://{}/", self.at.proxy))
            .header("E2b-Sandbox-Id", id)
            .header("E2b-Sandbox-Port", "8000")
    }

    async fn ask(&self, id: &str) -> Result<Answer> {
        send(self.request(id)).await
    }

    fn title(&self, number: u32, text: &str) {
        println!("\n  {}  {}", self.bold(&number.to_string()), self.bold(text));
    }

    fn line(&self, did: &str, status: &str, what: &str, took: u64) {
        let took = format!("{:>9}", millis(took));
        println!("     {} {did:<24} {status}  {what:<45} {}", self.good("✓"), self.dim(&took));
    }

    fn moment(&self, at: u64, what: &str) {
        println!("     {:>12}  {what}", millis(at));
    }

    fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.painted("2", text)
    }

    fn good(&self, text: &str) -> String {
        self.painted("32", text)
    }

    fn bad(&self, text: &str) -> String {
        self.painted("31", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.paint { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

async fn send(request: RequestBuilder) -> Result<Answer> {
    let sent = micros();
    let response = request.send().await.context("no answer from the proxy")?;
    let status = response.status();
    let timing = response.headers().get("server-timing");
    let timing = timing.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = response.text().await.context("the proxy's answer was cut")?;
    Ok(Answer { status, text, timing, sent, answered: micros() })
}

async fn expect(answer: Response, want: StatusCode) -> Result<Response> {
    let (status, path) = (answer.status(), answer.url().path().to_owned());
    if status != want {
        bail!("{path}: expected {want}, got {status}: {}", answer.text().await.unwrap_or_default());
    }
    Ok(answer)
}

fn millis(micros: u64) -> String {
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
