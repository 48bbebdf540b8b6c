//! A Redis server of the benchmark's own that has many running sandboxes, and whoever changes some of them.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use redis::{Client, aio::MultiplexedConnection};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{interval, sleep, timeout};

use crate::{
    control_plane::RUNNING,
    machine::{self, Tool},
    sockets::PATIENCE,
};

/// Sandboxes `many0` and so on, all on the upstream's node.
pub(crate) const SANDBOXES: usize = 1000;
/// So many of them change in a second: one in a hundred.
const CHANGES: u32 = 10;

pub(crate) const TOOL: Tool =
    Tool { program: "redis-server", package: "redis-server", skipped: "skipped: redis-server is not installed" };

/// The server; ended when dropped.
pub(crate) struct Redis {
    pub(crate) port: u16,
    child: Child,
    _folder: TempDir,
}

impl Redis {
    /// `None`: it is not installed.
    pub(crate) async fn start() -> anyhow::Result<Option<Self>> {
        let Some(program) = machine::find(TOOL.program) else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("client-proxy-load-").tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let this = Self { port, child, _folder: folder };
        let mut connection = timeout(PATIENCE, this.connected()).await.context("Redis does not answer")?;
        put(&mut connection, RUNNING, 0).await?;
        for sandbox in 0..SANDBOXES {
            put(&mut connection, &format!("many{sandbox}"), 0).await?;
        }
        Ok(Some(this))
    }

    async fn connected(&self) -> MultiplexedConnection {
        loop {
            match self.connect().await {
                Ok(connection) => return connection,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn connect(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        Client::open(format!("redis://{address}"))?.get_multiplexed_async_connection().await
    }

    /// Gives one sandbox after the other another life, for ever.
    pub(crate) async fn change(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        let mut tick = interval(Duration::from_secs(1) / CHANGES);
        for change in 1.. {
            tick.tick().await;
            put(&mut connection, &format!("many{}", change * 7 % SANDBOXES), change).await?;
        }
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn put(connection: &mut MultiplexedConnection, sandbox: &str, life: usize) -> anyhow::Result<()> {
    let record = json!({
        "orchestrator_id": "node",
        "orchestrator_ip": "127.0.0.1",
        "execution_id": format!("life{life}"),
        "sandbox_started_at": "2026-01-01T00:00:00Z",
        "sandbox_max_length_in_hours": 24,
    });
    let mut set = redis::cmd("SET");
    set.arg(format!("sandbox:catalog:{sandbox}")).arg(record.to_string());
    Ok(set.query_async(connection).await?)
}
