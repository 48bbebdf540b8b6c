//! Floor 3: the story of one request. Read `handle` first.

use std::{net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ipnet::IpNet;

use crate::{
    config::{AccessLog, AddressTemplate, Mode, UpstreamProtocol},
    forward::{Quota, headers::Peer},
    route::Rules,
    shutdown::Shutdown,
    telemetry::{Metrics, Quiet, Traces},
};

mod bridge;
mod caller;
mod code;
mod connect_stream;
mod context;
mod errand;
mod failure;
mod handle;
mod internal;
mod reply;
mod respond;
mod rules;
mod serving;
mod wish;

pub(crate) use self::{bridge::Bridge, handle::Handler, reply::Reply, rules::WakeRules};

/// What all requests of the process have in common.
pub(crate) struct Site {
    pub(crate) rules: Rules,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) mode: Mode,
    pub(crate) protocol: UpstreamProtocol,
    pub(crate) address: AddressTemplate,
    pub(crate) rewrite_shared_host: bool,
    /// Swapped by a reload.
    pub(crate) terms: ArcSwap<Terms>,
    /// Swapped by a reload; looked at only for sandboxes that are not known to run.
    pub(crate) wake: ArcSwap<WakeRules>,
    pub(crate) quota: Quota,
    pub(crate) metrics: Arc<Metrics>,
    /// For failures of the proxy's own, which come in crowds.
    pub(crate) quiet: Quiet,
    /// `None`: nobody collects any.
    pub(crate) traces: Option<Arc<Traces>>,
    pub(crate) shutdown: Shutdown,
}

/// What holds for a request and may be another for the next.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) hold_timeout: Duration,
    pub(crate) response_header_timeout: Option<Duration>,
    /// Direct mode: no head of an answer in this time, and the sandbox is looked for again.
    pub(crate) look_again: Duration,
    pub(crate) access: AccessLog,
}

impl Site {
    /// What is worth knowing of a client connection's other end.
    /// `secure`: it came over TLS.
    pub(crate) fn meet(&self, ip: IpAddr, secure: bool) -> Peer {
        Peer::new(ip, self.trusts(ip), secure)
    }

    fn trusts(&self, ip: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&ip))
    }
}
