//! Before the playground's proxy dials a sandbox: is it really the sandbox that listens there?

use std::{net::SocketAddr, sync::Arc};

use super::{domain, proc_tree, sandboxes::Sandboxes, sockets};
use crate::types::SandboxId;

/// Knows whose a listener is. All loopback addresses belong to one machine: a process of somebody else
/// that listens on a wildcard address listens on every sandbox's address.
#[derive(Clone)]
pub struct ListenerGuard {
    pub(super) sandboxes: Arc<Sandboxes>,
    /// Where the control API listens, if the proxy may take it for a sandbox.
    pub(super) api: Option<SocketAddr>,
}

impl ListenerGuard {
    /// Whether whoever listens at the address belongs to the sandbox. Where nobody listens nothing is in
    /// the way: the dial is refused by the kernel. Reads `/proc`: blocks.
    pub fn may_dial(&self, sandbox: &SandboxId, address: SocketAddr) -> bool {
        if sandbox.as_str() == domain::API {
            return self.api == Some(address);
        }
        let Some(root) = self.sandboxes.get(sandbox.as_str()).ok().and_then(|found| found.root()) else {
            return false;
        };
        // Listeners first, their holders second: one that changes hands meanwhile is refused.
        let table = sockets::listening();
        let listeners = sockets::listeners_for(address, &table);
        if listeners.is_empty() {
            return true;
        }
        let held = sockets::held_by(&proc_tree::live_tree(root));
        listeners.iter().all(|listener| held.contains_key(&listener.inode))
    }
}
