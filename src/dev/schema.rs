//! The bodies of the control API, as E2B's SDKs send and read them.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    api_error::ApiError,
    lifecycle::{OnTimeout, Phase, Policy},
    proc_tree,
    sandbox::Sandbox,
    sandboxes::Wish,
    variables::environment_fault,
};

/// What envd of this version can do; SDKs choose their calls by it.
const ENVD_VERSION: &str = "0.6.7";
/// What a sandbox is said to have; it has what this machine has.
const CPUS: u64 = 2;
const MEMORY_MB: u64 = 512;
const DISK_MB: u64 = 1024;
/// The longest time to live, as E2B's paid plans have it.
const LONGEST: u64 = 24 * 60 * 60;

/// `NewSandbox`, both versions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    template_id: String,
    timeout: Option<i64>,
    #[serde(default)]
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    network: Option<Network>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct AutoResume {
    enabled: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    allow_public_traffic: Option<bool>,
    /// Told back, and nothing else: nothing here keeps a sandbox from the network.
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl NewSandbox {
    /// Checks what can be checked without a machine. `default` is the version's timeout.
    pub(crate) fn into_wish(self, default: Duration) -> Result<Wish, ApiError> {
        let auto_pause = self.auto_pause.unwrap_or(false);
        let auto_resume = self.auto_resume.is_some_and(|policy| policy.enabled);
        if auto_resume && !auto_pause {
            return Err(ApiError::bad_request(
                "autoResume needs autoPause: a sandbox that is killed at its timeout cannot be resumed",
            ));
        }
        let environment = self.env_vars.unwrap_or_default();
        if let Some(fault) = environment_fault(&environment) {
            return Err(ApiError::bad_request(fault));
        }
        let network = self.network.unwrap_or_default();
        Ok(Wish {
            template: self.template_id,
            metadata: self.metadata.unwrap_or_default(),
            environment,
            private: network.allow_public_traffic == Some(false),
            network: network.more,
            internet: self.allow_internet_access,
            policy: Policy {
                on_timeout: if auto_pause { OnTimeout::Pause } else { OnTimeout::Kill },
                auto_resume,
                keep_memory: self.auto_pause_memory.unwrap_or(true),
                timeout: time_to_live(self.timeout, default)?,
                retention: None,
            },
        })
    }
}

/// `ConnectSandbox`, `ResumedSandbox`, `SandboxTimeoutRequest`.
#[derive(Default, Deserialize)]
pub(crate) struct TimeoutBody {
    pub(crate) timeout: Option<i64>,
    /// Without it the sandbox starts anew from its files.
    pub(crate) memory: Option<bool>,
}

/// `SandboxPauseRequest`.
#[derive(Default, Deserialize)]
pub(crate) struct PauseBody {
    pub(crate) memory: Option<bool>,
}

/// The body of a refresh.
#[derive(Default, Deserialize)]
pub(crate) struct RefreshBody {
    pub(crate) duration: Option<i64>,
}

/// A time to live in seconds.
pub(crate) fn time_to_live(seconds: Option<i64>, default: Duration) -> Result<Duration, ApiError> {
    match seconds {
        Some(..1) => Err(ApiError::bad_request("timeout must be at least 1 second")),
        Some(seconds) => time_left(seconds),
        None => Ok(default),
    }
}

/// What a sandbox that is to run is given at least: nothing is nothing, and ends what sleeps as soon as it runs.
pub(crate) fn time_more(seconds: Option<i64>, default: Duration) -> Result<Duration, ApiError> {
    match seconds {
        Some(..0) => Err(ApiError::bad_request("timeout must not be negative")),
        Some(seconds) => time_left(seconds),
        None => Ok(default),
    }
}

/// Time left from now in seconds; nothing and less means at once.
pub(crate) fn time_left(seconds: i64) -> Result<Duration, ApiError> {
    match u64::try_from(seconds) {
        Err(_) => Ok(Duration::ZERO),
        Ok(seconds) if seconds > LONGEST => {
            Err(ApiError::bad_request(format!("timeout may be {LONGEST} seconds at most")))
        }
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

/// The content type is not looked at: people paste curl commands without one. No web page can send the
/// key's header without a preflight, which nobody answers here.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the body is not as it should be: {error}")))
}

/// For bodies that may be left out.
pub(crate) fn parse_optional<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, ApiError> {
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { parse(body) }
}

/// `Sandbox`: the answer to create, connect and resume.
pub(crate) fn created(sandbox: &Sandbox, domain: Option<&str>) -> Value {
    let facts = &sandbox.facts;
    json!({
        "templateID": facts.template,
        "sandboxID": facts.id.as_str(),
        "alias": facts.template,
        "clientID": "playground",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": facts.envd_token,
        "trafficAccessToken": facts.traffic_token,
        "domain": domain,
    })
}

/// `ListedSandbox`.
pub(crate) fn listed(sandbox: &Sandbox) -> Value {
    let (facts, now) = (&sandbox.facts, sandbox.snapshot());
    json!({
        "templateID": facts.template,
        "sandboxID": facts.id.as_str(),
        "alias": facts.template,
        "clientID": "playground",
        "startedAt": humantime::format_rfc3339_millis(now.started).to_string(),
        "endAt": humantime::format_rfc3339_millis(now.ends).to_string(),
        "cpuCount": CPUS,
        "memoryMB": MEMORY_MB,
        "diskSizeMB": DISK_MB,
        "metadata": facts.metadata,
        "state": if now.is_running() { "running" } else { "paused" },
        "envdVersion": ENVD_VERSION,
        "volumeMounts": [],
    })
}

/// `SandboxDetail`, and what a proxy needs to find the sandbox and to guard it.
pub(crate) fn detail(sandbox: &Sandbox, domain: Option<&str>) -> Value {
    let (facts, now) = (&sandbox.facts, sandbox.snapshot());
    let mut detail = listed(sandbox);
    detail["envdAccessToken"] = json!(facts.envd_token);
    detail["trafficAccessToken"] = json!(facts.traffic_token);
    detail["allowInternetAccess"] = json!(facts.internet);
    detail["network"] = json!(facts.network);
    detail["network"]["allowPublicTraffic"] = json!(facts.traffic_token.is_none());
    detail["lifecycle"] = json!({
        "autoResume": facts.policy.auto_resume,
        "onTimeout": match facts.policy.on_timeout {
            OnTimeout::Kill => "kill",
            OnTimeout::Pause => "pause",
        },
    });
    // One reading decides state and place together.
    let running = now.is_running();
    detail["state"] = json!(if running { "running" } else { "paused" });
    detail["domain"] = json!(domain.filter(|_| running));
    if running {
        detail["nodeIP"] = json!(now.ip);
    }
    detail
}

/// One process of a sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessView {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// As in `/proc/<pid>/stat`: `T` is stopped.
    pub(crate) state: char,
}

/// Beyond E2B: what the playground itself knows of a sandbox. Reads `/proc`: blocks.
pub(crate) fn inside(sandbox: &Sandbox) -> Value {
    let now = sandbox.snapshot();
    let tree = now.root.map(proc_tree::live_tree).unwrap_or_default();
    let processes: Vec<ProcessView> = tree
        .into_iter()
        .map(|stat| ProcessView { pid: stat.process.pid, name: stat.name, state: stat.state })
        .collect();
    json!({
        "sandboxID": sandbox.facts.id.as_str(),
        "phase": match now.phase {
            Phase::Running { .. } => "running",
            Phase::Pausing { .. } => "pausing",
            Phase::Paused { .. } => "paused",
            Phase::Resuming { .. } => "resuming",
            Phase::Gone(_) => "gone",
        },
        "ip": now.ip,
        "processes": processes,
        "wakes": now.wakes,
        "wakeCalls": now.wake_calls,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(15);

    fn wish(body: &str) -> Result<Wish, ApiError> {
        parse::<NewSandbox>(body.as_bytes())?.into_wish(DEFAULT)
    }

    #[test]
    fn the_least_body_gives_the_documented_defaults() {
        let wish = wish(r#"{"templateID":"base"}"#).expect("a wish");
        assert_eq!(wish.policy.on_timeout, OnTimeout::Kill);
        assert_eq!(wish.policy.timeout, DEFAULT);
        assert!(!wish.policy.auto_resume && wish.policy.keep_memory && !wish.private);
    }

    #[test]
    fn auto_resume_comes_only_with_auto_pause() {
        for (body, good) in [
            (r#"{"templateID":"base","autoResume":{"enabled":true}}"#, false),
            (r#"{"templateID":"base","autoPause":false,"autoResume":{"enabled":true}}"#, false),
            (r#"{"templateID":"base","autoResume":{"enabled":false}}"#, true),
            (r#"{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}"#, true),
        ] {
            assert_eq!(wish(body).is_ok(), good, "{body}");
        }
    }

    #[test]
    fn bad_bodies_are_400() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"templateID":7}"#,
            r#"{"templateID":"base","timeout":0}"#,
            r#"{"templateID":"base","timeout":-1}"#,
            r#"{"templateID":"base","timeout":90000}"#,
            r#"{"templateID":"base","timeout":1.5}"#,
            r#"{"templateID":"base","metadata":{"a":1}}"#,
            r#"{"templateID":"base","envVars":{"A=B":"x"}}"#,
        ] {
            let error = wish(body).expect_err(body);
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{body}");
        }
    }

    #[test]
    fn no_time_left_means_now() {
        assert_eq!(time_left(0).ok(), Some(Duration::ZERO));
        assert_eq!(time_left(-5).ok(), Some(Duration::ZERO));
        assert_eq!(time_left(5).ok(), Some(Duration::from_secs(5)));
        assert!(time_left(i64::MAX).is_err());
    }
}
