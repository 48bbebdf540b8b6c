//! The tables `[catalog]`, `[cache]` and `[resume]`: which control planes there are, and how long their word counts.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::fault;
use crate::types::{Node, SandboxId, Secret};

/// `[catalog]`
#[derive(Clone, Debug)]
pub enum Catalog {
    /// Redis, as E2B keeps it.
    Redis(RedisCatalog),
    /// A fixed list.
    Static(BTreeMap<SandboxId, Node>),
    /// E2B's control API.
    Rest(RestCatalog),
}

/// `[catalog] redis`
#[derive(Clone, Debug)]
pub struct RedisCatalog {
    /// One server; or, for a cluster, any of its nodes, each asked for the others until one answers. Not empty.
    pub urls: Vec<RedisUrl>,
    /// Whether these are nodes of a Redis Cluster.
    pub cluster: bool,
    /// PEM of the authorities that sign the server's certificate; `None` = those of the system.
    pub ca: Option<Vec<u8>>,
    /// One lookup, and one connection's opening.
    pub timeout: Duration,
    /// Whether the server is asked to push changes.
    pub push: bool,
}

/// Where a Redis server is: `redis[s]://[user][:password]@host[:port][/database]`.
#[derive(Clone, Debug)]
pub struct RedisUrl {
    /// Name or address, without brackets.
    pub host: String,
    /// 6379 where none is written.
    pub port: u16,
    /// `rediss`: over TLS.
    pub tls: bool,
    /// Its user; `None` = the default user.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Its database.
    pub database: u16,
}

impl RedisUrl {
    /// Whether both are reached alike: the nodes of a cluster that are not written are, too.
    pub(crate) fn is_of_one_cluster_with(&self, other: &Self) -> bool {
        let password = |url: &Self| url.password.clone().unwrap_or_else(|| Secret::new(""));
        let same = password(self).matches(password(other).expose());
        same && (self.tls, &self.user) == (other.tls, &other.user)
    }
}

/// `[catalog] rest`
#[derive(Clone)]
pub struct RestCatalog {
    /// Base URL of the API.
    pub url: reqwest::Url,
    /// Sent as `X-API-KEY`.
    pub api_key: Secret,
    /// One lookup.
    pub timeout: Duration,
    /// JSON pointer (RFC 6901) to the node in a sandbox's detail.
    pub node_pointer: String,
}

impl fmt::Debug for RestCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestCatalog")
            .field("url", &fault::without_credentials(self.url.as_str()))
            .field("api_key", &self.api_key)
            .field("timeout", &self.timeout)
            .field("node_pointer", &self.node_pointer)
            .finish()
    }
}

/// `[cache]`
#[derive(Clone, Debug)]
pub struct Cache {
    /// How long an answer is used unasked when nobody tells of changes.
    pub ttl: Duration,
    /// The same while the catalog pushes every change.
    pub ttl_with_push: Duration,
    /// How long a known route outlives a catalog outage.
    pub stale_if_error: Duration,
    /// How long a refusal is remembered.
    pub negative_ttl: Duration,
    /// Sandboxes remembered at most.
    pub max_entries: usize,
}

/// `[resume]`
#[derive(Clone, Debug)]
pub struct Resume {
    /// Who wakes.
    pub resumer: Resumer,
    /// The longest that one request waits for its sandbox.
    pub hold_timeout: Duration,
    /// One wake call.
    pub call_timeout: Duration,
    /// Requests held at once.
    pub max_held: usize,
    /// The same per sandbox.
    pub max_held_per_sandbox: usize,
    /// The same per client address (IPv6: /64); 0 = no bound.
    pub max_held_per_client: usize,
    /// Wake calls at once.
    pub max_concurrent: usize,
    /// Held requests let through per sandbox and second after its wake; 0 = all at once.
    pub release_rate: u32,
}

/// `resume.kind`
#[derive(Clone, Debug)]
pub enum Resumer {
    /// Nobody.
    None,
    /// E2B's control API over gRPC.
    Grpc(GrpcResume),
    /// E2B's control API over REST.
    Rest(RestResume),
}

/// `[resume] grpc`
#[derive(Clone, Debug)]
pub struct GrpcResume {
    /// `host:port`, as in an authority.
    pub address: String,
    /// Whether over TLS.
    pub tls: bool,
    /// PEM of the authorities that sign the server's certificate; `None` = those of the system.
    pub ca: Option<Vec<u8>>,
    /// Where tokens for the calls come from; `None` = the calls carry none.
    pub oauth: Option<OAuth>,
}

/// `[resume] grpc.oauth`: client credentials (RFC 6749 §4.4).
#[derive(Clone)]
pub struct OAuth {
    /// Who asks for a token.
    pub client_id: String,
    /// What shows that it is so.
    pub client_secret: Secret,
    /// The token endpoint.
    pub token_url: reqwest::Url,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret)
            .field("token_url", &fault::without_credentials(self.token_url.as_str()))
            .finish()
    }
}

/// `[resume] rest`
#[derive(Clone)]
pub struct RestResume {
    /// Base URL of the API.
    pub url: reqwest::Url,
    /// Sent as `X-API-KEY`.
    pub api_key: Secret,
    /// The sandbox's time to live after a wake; at least 300 s.
    pub sandbox_timeout: Duration,
    /// JSON pointer to the node, as in the catalog.
    pub node_pointer: String,
}

impl fmt::Debug for RestResume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestResume")
            .field("url", &fault::without_credentials(self.url.as_str()))
            .field("api_key", &self.api_key)
            .field("sandbox_timeout", &self.sandbox_timeout)
            .field("node_pointer", &self.node_pointer)
            .finish()
    }
}
