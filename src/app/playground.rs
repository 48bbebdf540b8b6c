//! What is different of a proxy that serves the playground.

use std::sync::Arc;

use crate::{forward::ListenerGuard, types::SandboxId};

/// A proxy in front of the playground runs its production path, with rules of its own, because people browse on the
/// machine on which it runs, and its sandboxes are processes beside all others:
///
/// - a port is dialled only if its listener is the sandbox's (`guard`);
/// - `sandbox.<domain>` is served below its own domains only: pages may have other names that lead here;
/// - the health and the admin listener answer to names of this machine only, for the same reason.
pub struct PlaygroundRules {
    /// Judges listeners before they are dialled.
    pub guard: Arc<dyn ListenerGuard>,
    /// The only id that goes without a port in its name, and with no other: the control API's. `None`: any.
    pub id_without_port: Option<SandboxId>,
}
