//! envd as E2B's SDKs know it, inside each sandbox's agent.

#[allow(dead_code, unused_imports, reason = "services follow")]
pub(crate) mod rpc;
