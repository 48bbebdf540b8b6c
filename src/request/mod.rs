//! Floor 3: the story of one request. Read `handle` first.

use std::{net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use ipnet::IpNet;

use crate::{
    config::{AccessLog, AddressTemplate, Mode},
    forward::Quota,
    route::Rules,
    shutdown::Shutdown,
    telemetry::Metrics,
};

mod context;
mod errand;
mod failure;
mod handle;
mod internal;
mod reply;
mod respond;

pub(crate) use self::{handle::Handler, reply::Reply};

/// What all requests of the process have in common.
pub(crate) struct Site {
    pub(crate) rules: Rules,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) mode: Mode,
    pub(crate) address: AddressTemplate,
    pub(crate) rewrite_shared_host: bool,
    /// Swapped by a reload.
    pub(crate) terms: ArcSwap<Terms>,
    pub(crate) quota: Quota,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: Shutdown,
}

/// What holds for a request and may be another for the next.
pub(crate) struct Terms {
    pub(crate) hold_timeout: Duration,
    pub(crate) response_header_timeout: Option<Duration>,
    /// Direct mode: no head of an answer in this time, and the sandbox is looked for again.
    pub(crate) look_again: Duration,
    pub(crate) access: AccessLog,
}

impl Site {
    fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}
