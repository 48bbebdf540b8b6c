//! What the API's JSON says of a sandbox. Pure. A field of a wrong type is a fault, never a default:
//! a guess could open what is locked.

use std::sync::Arc;

use serde_json::Value;

use super::wire::Fault;
use crate::{
    sandbox::ports::Sleep,
    types::{Access, Node, Placement, Reason, SandboxId, Secret},
};

/// The longest token, time or host that is taken, in bytes: they are kept per sandbox.
const MAX_TEXT: usize = 4096;

/// The facts of one answer, each `None` where it does not tell.
#[derive(Debug)]
pub(super) struct Detail {
    pub(super) node: Option<Node>,
    pub(super) started_at: Option<Arc<str>>,
    pub(super) locks: Locks,
}

/// The locks as far as told.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    envd_token: Option<Secret>,
    private: Option<bool>,
    traffic_token: Option<Secret>,
}

impl Detail {
    /// Reads the fields that a detail and a connect answer share. An answer about another sandbox is a
    /// fault: following it would hand one user's traffic to another.
    pub(super) fn read(body: &Value, id: &SandboxId, node_pointer: &str) -> Result<Self, Fault> {
        if !body.is_object() {
            return Err("the answer is not a JSON object".into());
        }
        match text(body, "/sandboxID")? {
            Some(named) if named != id.as_str() => {
                return Err("the answer is about another sandbox".into());
            }
            _ => {}
        }
        let node = match text(body, node_pointer)?.map(str::trim) {
            None | Some("") => None,
            Some(host) => {
                let valid = Node::new(host);
                Some(valid.ok_or_else(|| format!("{node_pointer} is not a host"))?)
            }
        };
        let private = match body.pointer("/network/allowPublicTraffic") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(public)) => Some(!public),
            Some(_) => return Err("/network/allowPublicTraffic is not a boolean".into()),
        };
        Ok(Self {
            node,
            started_at: text(body, "/startedAt")?.map(Into::into),
            locks: Locks {
                envd_token: text(body, "/envdAccessToken")?.map(Secret::new),
                private,
                traffic_token: text(body, "/trafficAccessToken")?.map(Secret::new),
            },
        })
    }

    /// This, and where it does not tell, the other.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            node: self.node.or(other.node),
            started_at: self.started_at.or(other.started_at),
            locks: self.locks.or(other.locks),
        }
    }

    pub(super) fn placement(self) -> Placement {
        Placement { node: self.node, execution: self.started_at, access: Some(self.locks.into()), until: None }
    }
}

/// What `GET /sandboxes/{id}` found.
pub(super) enum Found {
    Running(Detail),
    Asleep(Sleep),
    Gone(Reason),
}

impl Found {
    /// Reads a success.
    pub(super) fn read(body: &Value, id: &SandboxId, node_pointer: &str) -> Result<Self, Fault> {
        let detail = Detail::read(body, id, node_pointer)?;
        match text(body, "/state")? {
            Some("running") => Ok(Self::Running(detail)),
            Some("paused") => {
                // Only a plain yes is one.
                let allowed = body.pointer("/lifecycle/autoResume") == Some(&Value::Bool(true));
                Ok(Self::Asleep(Sleep {
                    barred: (!allowed).then_some(Reason::AutoResumeOff),
                    access: Some(detail.locks.into()),
                }))
            }
            Some(_) => Err("/state is neither running nor paused".into()),
            None => Err("/state is missing".into()),
        }
    }
}

impl Locks {
    /// As [`Detail::or`].
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            envd_token: self.envd_token.or(other.envd_token),
            private: self.private.or(other.private),
            traffic_token: self.traffic_token.or(other.traffic_token),
        }
    }
}

impl From<Locks> for Access {
    /// Untold is E2B's default: user ports are public, envd has no token.
    fn from(locks: Locks) -> Self {
        Self {
            envd_token: locks.envd_token,
            private: locks.private.unwrap_or(false),
            traffic_token: locks.traffic_token,
        }
    }
}

impl From<Access> for Locks {
    fn from(access: Access) -> Self {
        Self { envd_token: access.envd_token, private: Some(access.private), traffic_token: access.traffic_token }
    }
}

/// A string; absent, null and empty are `None`.
fn text<'a>(body: &'a Value, pointer: &str) -> Result<Option<&'a str>, Fault> {
    match body.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text.len() <= MAX_TEXT => Ok(Some(text)),
        Some(Value::String(_)) => Err(format!("{pointer} is longer than {MAX_TEXT} bytes")),
        Some(_) => Err(format!("{pointer} is not a string")),
    }
}
