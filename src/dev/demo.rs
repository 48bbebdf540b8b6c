//! `--demo`: the story of a sandbox that sleeps, told by doing it. Everything goes over HTTP, as a user's
//! requests would; the first thing that is not as told is an error.

/// Whoever reads may stop reading (`| head`); the story goes on to its exit code.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod stage;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::stage::{Stage, expect, moment, send};
use super::{clock::micros, options::Addresses, schema::ProcessView};

const CROWD: u64 = 50;

/// Plays the story against a playground and its proxy and prints it. Fails where a step was not as told.
pub async fn play(at: &Addresses, api_key: &str) -> Result<()> {
    let stage = Stage::new(at, api_key)?;
    let outcome = stage.play().await;
    if let Err(error) = &outcome {
        say!("\n  {}\n", stage.bad(&format!("Not as told: {error:#}")));
    }
    outcome
}

impl Stage {
    async fn play(&self) -> Result<()> {
        say!("\n  {}", self.bold("client-proxy: a sandbox that sleeps when nobody needs it"));
        say!("  {}", self.dim("Real processes of this machine; everything below is measured while you look."));

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
        say!("\n  {}\n", self.good("Every step was as told."));
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
            say!("       /proc/{pid}/stat  {name:<14} state T  {}", self.dim("(stopped)"));
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
        moment(0, "request sent; it waits in the proxy");
        moment(wake.asked_at - answer.sent, "the proxy asks the control plane for a wake");
        moment(done - answer.sent, "the sandbox runs again");
        let timing = answer.timing.map(|timing| format!("   Server-Timing: {timing}"));
        let timing = self.dim(&timing.unwrap_or_default());
        moment(answer.answered - answer.sent, &format!("answer 200, count {count}{timing}"));
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
        say!("       wake calls at the control plane: {}", self.bold(&wakes.to_string()));
        say!("       client_proxy_wakes_total:        {}", self.bold(&format!("+{metric}")));
        Ok(())
    }
}
