//! The table for `benches/table.rs`, and for nobody else: the map of entries is private to its room, and what a
//! benchmark does with it fits into three calls.

use std::{cell::OnceCell, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    entry::{Event, Launch, Policy, Want},
    lease::Lease,
    leave::Leave,
    ports::Located,
    table,
};
use crate::types::{Credentials, Node, Placement, Port, Route, SandboxId};

/// A table as the resolver has it.
pub struct Table(table::Table);

impl Table {
    /// An empty one: routes last for an hour, and nothing is ever pushed out.
    #[expect(clippy::new_without_default, reason = "a benchmark says what it makes")]
    pub fn new() -> Self {
        let hour = Duration::from_hours(1);
        let policy = Policy {
            ttl: hour,
            ttl_with_push: 60 * hour,
            stale_if_error: hour,
            negative_ttl: hour,
            max_held_per_sandbox: usize::MAX,
        };
        Self(table::Table::new(policy, usize::MAX, Lease::new(metrics::Gauge::noop())))
    }

    /// The hot path: where a sandbox runs, if that is known.
    pub fn hit(&self, id: &SandboxId) -> Option<Arc<Route>> {
        self.0.route(id, Instant::now())
    }

    /// What the first request for a sandbox does before the catalog is asked. Whether a lookup is to begin.
    pub fn miss(&self, id: &SandboxId) -> bool {
        self.want(id).is_some()
    }

    /// Makes a sandbox known as running.
    pub fn settle(&self, id: &SandboxId) {
        if let Some(Launch::Locate { flight }) = self.want(id) {
            let placement = Placement { node: Node::new("10.0.0.1"), execution: None, access: None, until: None };
            let event = Event::Located { flight, outcome: Ok(Located::Running(placement)) };
            self.0.apply(id, event, Instant::now());
        }
    }

    fn want(&self, id: &SandboxId) -> Option<Launch> {
        let now = Instant::now();
        let credentials = Credentials { port: Port::ENVD, traffic_token: None, access_token: None };
        let want = Want {
            credentials: &credentials,
            digest: &OnceCell::new(),
            since: now,
            room: true,
            parked: false,
            may_wake: true,
            leave: Leave(&|| Ok(())),
            doubts: false,
        };
        self.0.apply(id, Event::Wanted(want), now)?.launch
    }
}
