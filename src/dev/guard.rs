//! Before the playground's proxy dials a sandbox: is it really the sandbox that listens there?

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use self::rounds::Rounds;
use super::{
    domain,
    proc_tree::{self, Process},
    sandboxes::Sandboxes,
    sockets::{self, Held, Socket},
};
use crate::types::SandboxId;

mod rounds;

/// Knows whose a listener is. All loopback addresses belong to one machine: a process of somebody else
/// that listens on a wildcard address listens on every sandbox's address.
///
/// `/proc` is slow to read, and many may dial at once: a reading that began after a dial asked is good enough for
/// it, whoever asked for that. A crowd costs a sandbox two or three, and others wait for those at most; who leaves
/// begins none beside the one that goes on.
#[derive(Clone)]
pub struct ListenerGuard {
    sandboxes: Arc<Sandboxes>,
    /// Where the control API listens, if the proxy may take it for a sandbox.
    api: Option<SocketAddr>,
    listeners: Arc<Rounds<(), Vec<Socket>>>,
    holders: Arc<Rounds<Process, HashMap<u64, Held>>>,
}

impl ListenerGuard {
    pub(super) fn new(sandboxes: Arc<Sandboxes>, api: Option<SocketAddr>) -> Self {
        Self { sandboxes, api, listeners: Arc::default(), holders: Arc::default() }
    }

    /// Whether whoever listens at the address belongs to the sandbox, found out after this was asked. Where nobody
    /// listens nothing is in the way: the dial is refused by the kernel.
    pub async fn may_dial(&self, sandbox: &SandboxId, address: SocketAddr) -> bool {
        if sandbox.as_str() == domain::API {
            return self.api == Some(address);
        }
        let Some(root) = self.sandboxes.get(sandbox.as_str()).ok().and_then(|found| found.root()) else {
            return false;
        };
        // Listeners first, their holders second: one that changes hands meanwhile is refused.
        let Some(table) = self.listeners.read((), sockets::listening).await else { return false };
        let listeners = sockets::listeners_for(address, &table);
        if listeners.is_empty() {
            return true;
        }
        let held = self.holders.read(root, move || sockets::held_by(&proc_tree::live_tree(root))).await;
        held.is_some_and(|held| listeners.iter().all(|listener| held.contains_key(&listener.inode)))
    }

    /// How often the listeners, and the holders of a sandbox's sockets, were read so far.
    pub fn readings(&self) -> (u64, u64) {
        (self.listeners.count(), self.holders.count())
    }
}
