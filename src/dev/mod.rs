//! Floor 3: the playground. E2B's control API in memory (`api`, `schema`), the rules of a sandbox's life
//! (`lifecycle`, pure), and sandboxes as local process trees that really sleep (`sandbox` joins the two;
//! `process`, `freeze`, `reset`, `remove` act; `proc_tree`, `sockets`, `usage` read `/proc`; `roots` are those of all
//! trees). `agent` is what runs inside a sandbox, `envd` what the SDKs talk to there, `interpreter` one application of
//! it, `guard` keeps strangers' listeners away from the proxy, `domain` and `authority` are `--tls`, `banner` and
//! `demo` are what people see.
//!
//! For development: loopback only, no isolation.

pub mod agent;
mod api;
mod api_error;
mod authority;
mod banner;
mod callers;
mod clock;
pub mod demo;
mod domain;
mod envd;
mod freeze;
mod guard;
mod heads;
mod interpreter;
mod lifecycle;
mod list;
mod metrics;
mod options;
mod proc_tree;
mod process;
mod random;
mod remove;
mod reset;
mod roots;
mod sandbox;
mod sandboxes;
mod schema;
mod sockets;
mod usage;
mod variables;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, OnceLock},
};

use anyhow::{Context as _, bail};
use axum::serve::ListenerExt as _;
use rustix::process::{getpid, set_child_subreaper};
use tokio::{net::TcpListener, task::JoinHandle};

use self::{
    api::Api,
    domain::Domain,
    random::random_hex,
    roots::ROOTS,
    sandboxes::{Ground, Sandboxes},
};
pub use self::{
    guard::ListenerGuard,
    options::{Addresses, Options, Template},
};
use crate::types::{SandboxId, Secret};

/// A running playground: the control API and its sandboxes. The proxy in front of it is not part of it.
///
/// It makes this process a subreaper, and at a sandbox's end takes for leftovers of it, and kills, children of
/// this process in sessions (setsid(2)) of their own, unless they or those sessions were below it when the playground
/// started (a second one, while the first has sandboxes, looks at nothing anew). Dropped, it ends as well, in the
/// background, and the files of what lives then are removed, too; those that were being removed already may stay.
pub struct Playground {
    api: Arc<Api>,
    api_addr: SocketAddr,
    wanted: Addresses,
    key: String,
    /// The key was made here.
    is_own: bool,
    server: JoinHandle<()>,
}

impl Playground {
    /// Binds the control API and serves it on the current runtime. `E2B_API_KEY` is the key where it is
    /// set; otherwise one is made. Fails when the address is taken, the key is of no use, or certificates
    /// cannot be made.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let brought = std::env::var("E2B_API_KEY").ok().filter(|key| !key.is_empty());
        let is_own = brought.is_none();
        let key = brought.map_or_else(|| random_hex(40).map(|key| format!("e2b_{key}")), Ok)?;
        // It is pasted into commands and into a configuration file.
        if !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
            bail!("E2B_API_KEY may hold letters, digits, '-', '_' and '.' here; unset it to get one made");
        }
        let wanted = options.addresses();
        let listener = TcpListener::bind(wanted.api)
            .await
            .with_context(|| format!("the control API cannot listen on {}", wanted.api))?;
        let api_addr = listener.local_addr()?;
        let listener = listener.tap_io(without_delay);
        ROOTS.remember_strangers();
        // What a sandbox leaves behind when its root is killed comes to this process, which ends it.
        set_child_subreaper(Some(getpid()))?;
        let api = Arc::new(Api {
            sandboxes: Arc::new(Sandboxes::new(Ground::new(options)?)),
            key: Secret::new(&key),
            proxy: OnceLock::new(),
            domain: Domain::of(options)?,
            address: api_addr,
        });
        let router = api::router(api.clone());
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the control API ended");
            }
        });
        Ok(Self { api, api_addr, wanted, key, is_own, server })
    }

    /// Where the control API listens.
    pub fn api_addr(&self) -> SocketAddr {
        self.api_addr
    }

    /// What callers of the control API must send as `X-API-KEY`.
    pub fn api_key(&self) -> &str {
        &self.key
    }

    /// The TOML text of a configuration for the proxy: its production path, pointed at this playground.
    pub fn proxy_config(&self) -> anyhow::Result<String> {
        let Addresses { proxy, health, admin, .. } = self.wanted;
        let (api, key) = (self.api_addr, &self.key);
        let domain = self.api.domain.as_ref().map(|domain| domain.config(api)).transpose()?;
        let domain = domain.unwrap_or_else(|| "domains = [\"localhost\"]\n".to_owned());
        Ok(format!(
            r#"# Made by the playground.
[server]
listen = ["{proxy}"]
max_connections = 1500 # what the smallest usual limit on open files, 4096, allows
{domain}[health]
listen = "{health}"
[admin]
listen = "{admin}"
[catalog]
kind = "rest"
rest = {{ url = "http://{api}", api_key = "{key}", node_pointer = "/nodeIP" }}
[resume]
kind = "rest"
rest = {{ url = "http://{api}", api_key = "{key}" }}
[wake]
health_probe = false # SDKs ask whenever a connection breaks off, as at a pause
[cache]
ttl = "200ms"
negative_ttl = "1ms" # what its owner has woken is there at once
[upstream]
mode = "direct"
address = "{{node}}:{{port}}"
allow_loopback = true
[shutdown]
drain_delay = "0s"
drain_timeout = "2s"
"#
        ))
    }

    /// The welcome with commands to paste, for where the playground's doors really are.
    pub async fn banner(&self, at: &Addresses) -> String {
        let key = self.is_own.then_some(&*self.key);
        let over_tls = match &self.api.domain {
            Some(domain) => domain.banner(key).await,
            None => String::new(),
        };
        banner::text(at, key, &self.api.sandboxes.ground.template_names(), &over_tls)
    }

    /// What the proxy takes the control API for: the one name of the domain that needs no port.
    pub fn id_without_port(&self) -> Option<SandboxId> {
        self.api.domain.as_ref().and_then(|_| SandboxId::new(domain::API))
    }

    /// Tells where the proxy was bound: answers of the control API name it as `domain`.
    pub fn set_proxy_addr(&self, address: SocketAddr, tls: Option<SocketAddr>) {
        let _ = self.api.proxy.set(address);
        if let (Some(domain), Some(address)) = (&self.api.domain, tls) {
            domain.bind(address);
        }
    }

    /// Tells the proxy whose a listener is.
    pub fn listener_guard(&self) -> ListenerGuard {
        let api = self.api.domain.is_some().then_some(self.api_addr);
        ListenerGuard::new(self.api.sandboxes.clone(), api)
    }

    /// Where the sandboxes' files are, and for a while those of ended ones.
    pub fn folder(&self) -> &Path {
        self.api.sandboxes.ground.folder()
    }

    /// Ends every sandbox; returns when no process and no file of any is left, half an hour later at most. Should that
    /// be dropped, what lives ends in the background, as with a playground that is dropped.
    pub async fn shutdown(self) {
        self.server.abort();
        self.api.sandboxes.close().await;
    }
}

/// Small answers go out at once (tcp(7), `TCP_NODELAY`).
fn without_delay(stream: &mut tokio::net::TcpStream) {
    let _ = stream.set_nodelay(true);
}

impl Addresses {
    /// The same doors on free ports.
    pub(crate) fn free() -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { api: free, proxy: free, health: free, admin: free, tls: None }
    }
}
