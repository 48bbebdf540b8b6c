//! What the catalog holds of one sandbox: JSON under `sandbox:catalog:{id}`, written when it starts or resumes,
//! deleted before it pauses.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use tokio::time::Instant;

use crate::types::{Node, Placement, SandboxId};

/// What the names of the catalog's keys begin with.
pub(super) const PREFIX: &str = "sandbox:catalog:";
/// E2B's records have some 200 bytes.
const MAX_BYTES: usize = 16 * 1024;

/// The fields that matter here; `sandbox_started_at` and `sandbox_max_length_in_hours` say nothing that the key's own
/// expiry does not.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow, default)]
    orchestrator_ip: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    execution_id: Option<Cow<'a, str>>,
}

pub(super) fn key(id: &SandboxId) -> String {
    format!("{PREFIX}{id}")
}

/// The sandbox that a key is about.
pub(super) fn sandbox_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)
}

/// The place that a value names; `until` is when its key expires. The error quotes nothing of it.
pub(super) fn read(value: &[u8], until: Option<Instant>) -> Result<Placement, String> {
    if value.len() > MAX_BYTES {
        return Err(format!("a record of {} bytes", value.len()));
    }
    // Fields alone would do for serde, in the order in which they stand here.
    if value.trim_ascii_start().first() != Some(&b'{') {
        return Err("no record of a sandbox: no object".into());
    }
    let record: Record<'_> =
        serde_json::from_slice(value).map_err(|error| format!("no record of a sandbox: {:?}", error.classify()))?;
    let node = match record.orchestrator_ip.as_deref().unwrap_or_default().trim() {
        // The route is unavailable, and that is an answer.
        "" => None,
        host => Some(Node::new(host).ok_or("its orchestrator_ip is no host")?),
    };
    let execution = record.execution_id.filter(|id| !id.is_empty()).map(|id| Arc::from(&*id));
    Ok(Placement { node, execution, access: None, until })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_node_and_execution() {
        let value = br#"{"orchestrator_id":"o","orchestrator_ip":" fd00::1 ","execution_id":"e1",
            "sandbox_started_at":"2026-11-30T00:00:00Z","sandbox_max_length_in_hours":24,"new":{}}"#;
        let placement = read(value, None).expect("a record");
        assert_eq!(placement.node.expect("a node").as_str(), "[fd00::1]");
        assert_eq!(placement.execution.as_deref(), Some("e1"));
        for value in [&br#"{"orchestrator_ip":""}"#[..], b"{}", br#"{"orchestrator_ip":null,"execution_id":null}"#] {
            let placement = read(value, None).expect("a record");
            assert!(placement.node.is_none() && placement.execution.is_none());
        }
    }

    #[test]
    fn nonsense_is_told_without_quoting_it() {
        for value in ["", "secret", "[]", r#"{"orchestrator_ip":"secret host"}"#, r#"{"orchestrator_ip":1}"#] {
            let error = read(value.as_bytes(), None).expect_err(value);
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(read(&vec![b' '; MAX_BYTES + 1], None).is_err());
    }

    #[test]
    fn keys_and_sandboxes_name_each_other() {
        let id = SandboxId::new("abc").expect("an id");
        assert_eq!(sandbox_of(key(&id).as_bytes()), Some("abc"));
        assert_eq!(sandbox_of(b"sandbox:other:abc"), None);
        assert_eq!(sandbox_of(b"sandbox:catalog:\xff"), None);
    }
}
