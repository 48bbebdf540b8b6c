//! Floor 1: what the operator decided, typed. Made only by [`Config::load`], which reports every fault
//! of the file and the environment at once.
//!
//! ```text
//! file ─▶ tree ◀─ env    every value knows where it was written
//!          ▼
//! sections ─▶ table      one call per key: its name, default and kind
//!          ▼
//! checks ─▶ reading      faults, or the effective configuration
//! ```

mod certificates;
mod checks;
mod control;
mod e2b;
mod env;
mod fault;
mod keys;
mod kinds;
mod reading;
mod sections;
mod table;
mod tree;
mod wake;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use ipnet::IpNet;

pub(crate) use self::kinds::{duration, filter};
pub use self::{
    certificates::{Certificate, CertificateFiles},
    control::{Cache, Catalog, GrpcResume, OAuth, RedisCatalog, RedisUrl, RestCatalog, RestResume, Resume, Resumer},
    env::Environment,
    fault::{Fault, Faults, Place},
    keys::Keys,
    wake::{PathRule, Wake},
};
use crate::types::{Node, Port, SandboxId, Secret};

/// A configuration without fault.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the operator decided.
    pub config: Config,
    /// All that is in use, defaults too, as TOML with secrets masked.
    pub effective: String,
    /// The same key by key, to be compared with another configuration.
    pub keys: Keys,
    /// What is allowed and yet likely not meant; one sentence each.
    pub warnings: Vec<String>,
    /// What there is to be told at the start; one sentence each.
    pub remarks: Vec<String>,
}

impl Config {
    /// Reads a TOML file's bytes; the environment fills `${VAR}` in its strings and overrides its keys
    /// (`CLIENT_PROXY__SERVER__WORKERS=4`). An empty file gives the defaults.
    pub fn load(file: &[u8], env: &Environment) -> Result<Loaded, Faults> {
        Self::read(tree::parse(file)?, Vec::new(), env)
    }

    /// Whether this is an environment that [`Config::load_e2b`] is for.
    pub fn is_e2b(env: &Environment) -> bool {
        env.first(&e2b::REDIS).is_some()
    }

    /// Reads the variables of E2B's own client-proxy instead of a file; `CLIENT_PROXY__…` override them as they do a
    /// file's keys.
    pub fn load_e2b(env: &Environment) -> Result<Loaded, Faults> {
        let e2b::Read { root, faults, remarks, warnings } = e2b::read(env);
        let loaded = Self::read(root, faults, env)?;
        Ok(Loaded { warnings: warnings.into_iter().chain(loaded.warnings).collect(), remarks, ..loaded })
    }

    fn read(mut root: tree::Entries, mut faults: Vec<Fault>, env: &Environment) -> Result<Loaded, Faults> {
        env.overlay(&mut root, &mut faults);
        let reading = reading::Reading::new(env, faults);
        let config = sections::read(reading.root(root));
        checks::faults(&config, &reading);
        let (effective, keys) = reading.finish()?;
        let warnings = checks::warnings(&config, env);
        Ok(Loaded { config, effective, keys, warnings, remarks: Vec::new() })
    }
}

/// The whole configuration; the tables of the file.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`: towards clients.
    pub server: Server,
    /// `[health]`: for probes and scrapers.
    pub health: Health,
    /// `[admin]`: for operators.
    pub admin: Admin,
    /// `[catalog]`: where a sandbox runs.
    pub catalog: Catalog,
    /// `[cache]`: how long answers of the catalog are used.
    pub cache: Cache,
    /// `[resume]`: waking and holding.
    pub resume: Resume,
    /// `[wake]`: which traffic wakes.
    pub wake: Wake,
    /// `[upstream]`: towards sandboxes.
    pub upstream: Upstream,
    /// `[shutdown]`: the end.
    pub shutdown: Shutdown,
    /// `[otlp]`: traces.
    pub otlp: Otlp,
    /// `[log]`: what is written down.
    pub log: Log,
}

/// `[server]`
#[derive(Clone, Debug)]
pub struct Server {
    /// Plain HTTP listeners.
    pub listen: Vec<SocketAddr>,
    /// Worker threads; 0 = one per core.
    pub workers: usize,
    /// Accepted domain suffixes, lower case, without leading dot; empty = any.
    pub domains: Vec<String>,
    /// Further Host names, lower case, that route by headers.
    pub header_hosts: Vec<String>,
    /// The port that `{id}.{domain}` means; `None`: such a Host is refused.
    pub default_port: Option<Port>,
    /// Client connections at once.
    pub max_connections: usize,
    /// First byte to end of a request head; also accept to first byte.
    pub header_read_timeout: Duration,
    /// Keep-alive without a request.
    pub idle_timeout: Duration,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: ProxyProtocol,
    /// Peers whose forwarding headers and PROXY headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// `[server.tls]`: listeners with TLS.
    pub tls: Tls,
}

/// `[server.tls]`
#[derive(Clone, Debug)]
pub struct Tls {
    /// HTTPS listeners.
    pub listen: Vec<SocketAddr>,
    /// What they show; the first one to whoever names no host, or a host that none is for.
    pub certificates: Vec<Arc<Certificate>>,
}

/// `server.proxy_protocol`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// No header is read.
    Off,
    /// A trusted peer may send one.
    Optional,
    /// Whoever sends none, or is not trusted, is not served.
    Required,
}

/// `[health]`
#[derive(Clone, Debug)]
pub struct Health {
    /// Where probes and scrapers ask.
    pub listen: SocketAddr,
}

/// `[admin]`
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where operators ask; `None` = off.
    pub listen: Option<SocketAddr>,
    /// Needed as `Authorization: Bearer` when set.
    pub token: Option<Secret>,
}

/// Who owns the last hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The address is an orchestrator's proxy, which checks tokens and dials the sandbox.
    Node,
    /// The address is the sandbox itself.
    Direct,
}

/// `upstream.protocol`: what sandboxes are asked in. Upgrades are always asked for in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, but HTTP/2 for gRPC.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge, in the clear (RFC 9113 §3.3).
    H2c,
}

impl UpstreamProtocol {
    /// Whether a request goes out in HTTP/2, which may be gRPC.
    pub(crate) fn is_http2(self, grpc: bool) -> bool {
        match self {
            Self::Auto => grpc,
            Self::Http1 => false,
            Self::H2c => true,
        }
    }
}

/// `[upstream]`
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Who owns the last hop.
    pub mode: Mode,
    /// Template of the address to dial.
    pub address: AddressTemplate,
    /// What sandboxes are asked in.
    pub protocol: UpstreamProtocol,
    /// One dial.
    pub connect_timeout: Duration,
    /// Dials of a port that a wake has not opened yet (direct mode).
    pub connect_attempts: u32,
    /// Pooled connections without a request.
    pub idle_timeout: Duration,
    /// Request sent to response head; `None` = no bound.
    pub response_header_timeout: Option<Duration>,
    /// Exchanges per sandbox at once (direct mode); 0 = no bound.
    pub max_connections_per_sandbox: usize,
    /// Whether loopback and link-local nodes may be dialled (direct mode).
    pub allow_loopback: bool,
    /// Whether header-routed requests on a shared host get the sandbox's own Host.
    pub rewrite_shared_host: bool,
}

/// `upstream.address`: `{node}:5007` and the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressTemplate {
    /// Text and placeholders in order.
    pub parts: Vec<AddressPart>,
}

/// One piece of an [`AddressTemplate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPart {
    /// Text as it stands.
    Text(String),
    /// `{node}`
    Node,
    /// `{port}`
    Port,
    /// `{sandbox}`
    Sandbox,
}

impl AddressTemplate {
    /// Whether the catalog must name a node.
    pub fn needs_node(&self) -> bool {
        self.parts.contains(&AddressPart::Node)
    }

    /// The address to dial; `None` if it needs a node and there is none.
    pub fn render(&self, node: Option<&Node>, port: Port, sandbox: &SandboxId) -> Option<String> {
        use std::fmt::Write as _;
        let mut address = String::with_capacity(64);
        for part in &self.parts {
            match part {
                AddressPart::Text(text) => address.push_str(text),
                AddressPart::Node => address.push_str(node?.as_str()),
                AddressPart::Port => write!(address, "{port}").ok()?,
                AddressPart::Sandbox => address.push_str(sandbox.as_str()),
            }
        }
        Some(address)
    }
}

/// `[shutdown]`
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// Readiness already fails, connections are still taken.
    pub drain_delay: Duration,
    /// Then in-flight work is cut.
    pub drain_timeout: Duration,
}

impl Config {
    /// What a platform must allow between asking the process to end and ending it.
    pub fn grace(&self) -> Duration {
        // What is cut at the end has a second for its last words, and the log one for its last lines; or all ended
        // just in time, and the last spans have three to reach a collector.
        let rest = if self.otlp.endpoint.is_some() { 4 } else { 2 };
        self.shutdown.drain_delay + self.shutdown.drain_timeout + Duration::from_secs(rest)
    }
}

/// `[otlp]`
#[derive(Clone)]
pub struct Otlp {
    /// The collector that takes traces by OTLP/gRPC; `None` = no traces. Its user and password are secret.
    pub endpoint: Option<reqwest::Url>,
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.endpoint.as_ref().map(|url| fault::without_credentials(url.as_str()));
        f.debug_struct("Otlp").field("endpoint", &endpoint).finish()
    }
}

/// `[log]`
#[derive(Clone, Debug)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// A `tracing_subscriber` filter.
    pub filter: String,
    /// Which requests get an access line.
    pub access: AccessLog,
}

/// `log.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// `log.access`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Every request.
    All,
    /// Those that this proxy answered with an error, and cut ones.
    Errors,
    /// None.
    Off,
}
