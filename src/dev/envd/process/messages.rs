//! The messages of `process.Process` (E2B's `process.proto`) as protobuf's JSON has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dev::envd::rpc::Blob;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StartRequest {
    pub(super) process: ProcessConfig,
    pub(super) pty: Option<Pty>,
    pub(super) tag: Option<String>,
    /// Older SDKs do not say; they mean yes.
    pub(super) stdin: Option<bool>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ProcessConfig {
    pub(super) cmd: String,
    pub(super) args: Vec<String>,
    pub(super) envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pty {
    pub(super) size: Size,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Size {
    pub(super) cols: u32,
    pub(super) rows: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Selector {
    Pid(u32),
    Tag(String),
}

/// Of `Connect` and `CloseStdin`.
#[derive(Debug, Deserialize)]
pub(super) struct Chosen {
    pub(super) process: Selector,
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateRequest {
    pub(super) process: Selector,
    pub(super) pty: Option<Pty>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SignalRequest {
    pub(super) process: Selector,
    #[serde(default)]
    pub(super) signal: Signal,
}

/// An enumeration's name or number.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(untagged)]
pub(super) enum Signal {
    Name(SignalName),
    Number(i32),
    #[default]
    #[serde(skip)]
    Missing,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum SignalName {
    #[serde(rename = "SIGNAL_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "SIGNAL_SIGTERM")]
    Term,
    #[serde(rename = "SIGNAL_SIGKILL")]
    Kill,
}

#[derive(Debug, Deserialize)]
pub(super) struct InputRequest {
    pub(super) process: Selector,
    pub(super) input: Input,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Input {
    Stdin(Blob),
    Pty(Blob),
}

/// Of `StreamInput`: `Start` once and first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StreamedInput {
    Start { process: Selector },
    Data { input: Input },
    Keepalive {},
}

#[derive(Debug, Deserialize)]
pub(super) struct ListRequest {}

#[derive(Debug, Serialize)]
pub(super) struct ListResponse {
    pub(super) processes: Vec<ProcessInfo>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProcessInfo {
    pub(super) config: ProcessConfig,
    pub(super) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Nothing {}

/// What `Start` and `Connect` stream.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Answer {
    pub(super) event: Event,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Event {
    Start { pid: u32 },
    Data(Output),
    End(End),
    Keepalive {},
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Output {
    Stdout(Blob),
    Stderr(Blob),
    Pty(Blob),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    pub(super) exit_code: i32,
    pub(super) exited: bool,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}
