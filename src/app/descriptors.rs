//! The limit on open files: raised as far as it goes, and held against what the configuration may take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{config::Config, edge::operators};

/// Beside clients and their ways to sandboxes: the operators' listeners, the control plane, the runtimes.
const OTHERS: usize = 2 * operators::ROOM + 256;

/// With so few descriptors that none were left, sandboxes are still to be reached.
const FEW: usize = 64;

/// Raises the soft limit to the hard one, says what it came to, and warns of settings beyond it.
pub(super) fn raise(config: &Config) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit on open files cannot be raised to the hard limit");
    }
    let effective = getrlimit(Resource::Nofile).current;
    let (max_connections, max_held) = (config.server.max_connections, config.resume.max_held);
    let descriptors = effective.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    tracing::info!(descriptors, max_connections, max_held, "effective limits");
    let wanted = wanted(max_connections);
    if effective.is_some_and(|limit| limit < wanted) {
        tracing::warn!(
            descriptors,
            wanted,
            "server.max_connections = {max_connections} is beyond the limit on open files: raise the limit \
             (ulimit -Hn, LimitNOFILE=) or lower the setting"
        );
    }
}

/// How many connections to nodes and sandboxes there may be: some descriptors are left for clients and the rest,
/// also where each client has a hundred requests at once.
pub(super) fn for_sandboxes() -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(usize::MAX, |limit| limit.saturating_sub(OTHERS) / 8 * 7).max(FEW)
}

/// Each client has a way to its sandbox.
fn wanted(max_connections: usize) -> u64 {
    let wanted = max_connections.saturating_mul(2).saturating_add(OTHERS);
    u64::try_from(wanted).unwrap_or(u64::MAX)
}
