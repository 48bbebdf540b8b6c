//! `catalog.kind = "redis"`: E2B's catalog. It is asked for what is not known, and tells what changes; how far that
//! is trusted is the business of [`crate::sandbox::ports::Lease`].

mod cluster;
mod link;
mod record;
mod server;

use std::sync::{Arc, OnceLock};

use redis::{Pipeline, RedisError, aio::MultiplexedConnection};
use tokio::{runtime::Handle, time::Instant};

use self::{
    cluster::Cluster,
    link::Link,
    server::{Address, Servers},
};
use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Catalog, CatalogError, Listener, Located},
    types::SandboxId,
};

/// Redis as catalog: one server, or a cluster.
#[derive(Debug)]
pub struct RedisCatalog {
    servers: Servers,
    seeds: Vec<Address>,
    cluster: bool,
    control: Handle,
    source: OnceLock<Source>,
}

#[derive(Debug)]
enum Source {
    One(Link),
    Cluster(Cluster),
}

impl RedisCatalog {
    /// Checks the settings; connects, on `control`, when it is told who listens. Needs
    /// [`crate::control::install_tls_provider`].
    pub fn new(settings: &config::RedisCatalog, control: &Handle) -> Result<Self, SetupError> {
        let (servers, seeds) = Servers::new(settings)?;
        Ok(Self { servers, seeds, cluster: settings.cluster, control: control.clone(), source: OnceLock::new() })
    }
}

impl Catalog for RedisCatalog {
    async fn locate(&self, id: &SandboxId) -> Result<Located, CatalogError> {
        let key = record::key(id);
        let fault = |why: String| CatalogError(format!("GET {key}: {why}"));
        let reply = match self.source.get() {
            None => Err("it is not connected yet".to_owned()),
            Some(Source::One(link)) => {
                let connection = link.connection().await.map_err(fault)?;
                ask(connection, &key, false).await.map_err(|error| error.to_string())
            }
            Some(Source::Cluster(cluster)) => cluster.ask(&key).await,
        };
        match reply.map_err(fault)? {
            None => Ok(Located::Absent),
            Some((value, until)) => record::read(&value, until).map(Located::Running).map_err(fault),
        }
    }

    fn tell(&self, listener: Arc<dyn Listener>) {
        self.source.get_or_init(|| {
            if self.cluster {
                Source::Cluster(Cluster::start(self.servers.clone(), self.seeds.clone(), listener, &self.control))
            } else {
                Source::One(Link::start(self.servers.clone(), self.seeds[0].clone(), listener, &self.control))
            }
        });
    }
}

/// What is under a key, and when it expires; `None`: nothing. The moment is told too early rather than too late.
type Reply = Option<(Vec<u8>, Option<Instant>)>;

/// One lookup. `moving`: the key's slot is on its way to this server, which answers only if told so.
async fn ask(mut connection: MultiplexedConnection, key: &str, moving: bool) -> Result<Reply, RedisError> {
    let mut call = Pipeline::with_capacity(4);
    for command in ["GET", "PTTL"] {
        if moving {
            call.cmd("ASKING").ignore();
        }
        call.cmd(command).arg(key);
    }
    let asked = Instant::now();
    let (value, left): (Option<Vec<u8>>, i64) = call.query_async(&mut connection).await?;
    Ok(match (value, left) {
        // It expired between the two.
        (None, _) | (_, -2) => None,
        // It never does.
        (Some(value), -1) => Some((value, None)),
        (Some(value), left) => {
            let left = std::time::Duration::from_millis(left.unsigned_abs());
            Some((value, asked.checked_add(left)))
        }
    })
}
