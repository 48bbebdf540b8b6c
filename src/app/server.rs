//! What the rooms of floor 3 need of each other, passed from above.

use std::{future::Future, net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;

use super::{descriptors, playground::PlaygroundRules};
use crate::{
    config::{self, Catalog, Config, Mode},
    control::{AnyCatalog, AnyResumer},
    edge::{
        conn::{Serve, Tunnel},
        introduction::Introductions,
        watch::Patience,
        worker::Upkeep,
    },
    forward::{ClientSide, DialRules, Forwarder, Quota, Vigilance, Ways, headers::Peer},
    request::{Bridge, Handler, Reply, Site, Terms},
    route::Rules,
    sandbox::{Limits, Policy, Resolver},
    shutdown::Shutdown,
    telemetry::{Metrics, Quiet, Traces, metrics::Origin},
};

/// The resolver over the control planes that the configuration can choose.
pub(super) type Finder = Resolver<AnyCatalog, AnyResumer>;

/// What a worker's server is made of, on the worker's own thread.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) site: Arc<Site>,
    finder: Arc<Finder>,
    rules: DialRules,
    idle_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Parts {
    pub(super) fn new(
        config: &Config,
        playground: Option<PlaygroundRules>,
        finder: Arc<Finder>,
        metrics: Arc<Metrics>,
        traces: Option<Arc<Traces>>,
        shutdown: &Shutdown,
    ) -> Self {
        let Config { server, upstream, .. } = config;
        let shared_within_domains = playground.is_some();
        let (guard, default_port_for) = playground.map(|rules| (rules.guard, rules.id_without_port)).unzip();
        let site = Arc::new(Site {
            rules: Rules {
                domains: server.domains.clone(),
                header_hosts: server.header_hosts.clone(),
                default_port: server.default_port,
                default_port_for: default_port_for.flatten(),
                shared_within_domains,
            },
            trusted_proxies: server.trusted_proxies.clone(),
            mode: upstream.mode,
            protocol: upstream.protocol,
            address: upstream.address.clone(),
            rewrite_shared_host: upstream.rewrite_shared_host,
            terms: ArcSwap::from_pointee(terms(config)),
            wake: ArcSwap::from_pointee((&config.wake).into()),
            quota: Quota::new(quota(config, upstream.mode)),
            metrics: metrics.clone(),
            quiet: Quiet::default(),
            traces,
            shutdown: shutdown.clone(),
        });
        let rules = DialRules {
            connect_timeout: upstream.connect_timeout,
            attempts: upstream.connect_attempts,
            restricted: upstream.mode == Mode::Direct,
            allow_loopback: upstream.allow_loopback,
            guard,
            ways: Ways::new(descriptors::for_sandboxes(), metrics.upstream_connections.clone()),
        };
        Self { site, finder, rules, idle_timeout: upstream.idle_timeout, metrics }
    }

    pub(super) fn server(self) -> Server {
        let vigilance = match self.site.mode {
            Mode::Node => Vigilance::Pings,
            Mode::Direct => Vigilance::Patience,
        };
        let forwarder = Rc::new(Forwarder::new(self.rules, vigilance, self.idle_timeout, self.metrics));
        Server(Rc::new(Handler { site: self.site, resolver: self.finder, forwarder }))
    }
}

pub(super) fn terms(config: &Config) -> Terms {
    Terms {
        hold_timeout: config.resume.hold_timeout,
        response_header_timeout: config.upstream.response_header_timeout,
        look_again: config.cache.ttl,
        access: config.log.access,
    }
}

/// `mode` is the running one, whatever the file says by now.
pub(super) fn quota(config: &Config, mode: Mode) -> usize {
    match mode {
        Mode::Direct => config.upstream.max_connections_per_sandbox,
        Mode::Node => 0,
    }
}

pub(super) fn patience(config: &Config) -> Patience {
    Patience { head: config.server.header_read_timeout, idle: config.server.idle_timeout }
}

pub(super) fn introductions(config: &Config) -> Introductions {
    let config::Server { proxy_protocol, trusted_proxies, .. } = &config.server;
    Introductions { protocol: *proxy_protocol, trusted: trusted_proxies.clone() }
}

pub(super) fn limits(config: &Config) -> Limits {
    let Config { cache, resume, wake, .. } = config;
    Limits {
        policy: Policy {
            ttl: cache.ttl,
            ttl_with_push: cache.ttl_with_push,
            stale_if_error: cache.stale_if_error,
            negative_ttl: cache.negative_ttl,
            max_held_per_sandbox: resume.max_held_per_sandbox,
        },
        max_entries: cache.max_entries,
        max_held: resume.max_held,
        max_held_per_client: resume.max_held_per_client,
        max_concurrent: resume.max_concurrent,
        release_rate: resume.release_rate,
        max_wakes_per_minute: wake.max_per_client_per_minute,
        hold_timeout: resume.hold_timeout,
        lookup_timeout: match &config.catalog {
            Catalog::Redis(redis) => redis.timeout,
            Catalog::Static(_) => Duration::from_secs(1),
            Catalog::Rest(rest) => rest.timeout,
        },
        call_timeout: resume.call_timeout,
    }
}

/// The handler, as a worker knows it.
pub(super) struct Server(Rc<Handler<AnyCatalog, AnyResumer>>);

impl Serve for Server {
    type Body = Reply;
    type Peer = Peer;
    type Tunnel = Bridge;

    fn meet(&self, ip: IpAddr, secure: bool) -> Peer {
        self.0.site.meet(ip, secure)
    }

    fn serve(&self, request: Request<Incoming>, peer: &Peer) -> impl Future<Output = Response<Reply>> + use<> {
        self.0.handle(request, peer)
    }

    fn tunnel(answer: Reply) -> Option<Bridge> {
        answer.into_bridge()
    }

    fn refused(&self, status: u16) {
        self.0.site.metrics.request(Origin::Proxy, status, "malformed");
    }
}

impl Tunnel for Bridge {
    fn run<C: ClientSide>(self, client: C, ahead: Bytes) -> impl Future<Output = ()> {
        Bridge::run(self, client, ahead)
    }
}

impl Upkeep for Server {
    fn upkeep(&self) {
        self.0.forwarder.sweep();
    }
}
