//! A real Redis server, or a cluster of them, as processes of the test's own; and whoever writes E2B's catalog there.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, FromRedisValue, Value, aio::MultiplexedConnection};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::support::eventually;

/// A server; ended when dropped.
pub struct Redis {
    pub port: u16,
    arguments: Vec<String>,
    folder: TempDir,
    child: Mutex<Option<Child>>,
    /// What its writer is told to say who it is.
    login: String,
    /// The database that it writes to, as a path; empty: the first.
    pub path: &'static str,
}

impl Redis {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With these arguments, too. It keeps nothing over a restart unless they say so.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let this = Self::prepare(arguments, "");
        this.restart().await;
        this
    }

    /// For a writer that logs in with `user:password@`.
    pub async fn start_for(login: &str, arguments: &[&str]) -> Self {
        let this = Self::prepare(arguments, login);
        this.restart().await;
        this
    }

    /// Chosen, and not started.
    pub fn prepare(arguments: &[&str], login: &str) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let folder = TempDir::new().expect("a folder");
        Self { port: free_port(), arguments, folder, child: Mutex::new(None), login: login.into(), path: "" }
    }

    /// Starts it where it was.
    pub async fn restart(&self) {
        let port = self.port.to_string();
        let child = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--dir"])
            .arg(self.folder.path())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server");
        let me = format!("process_id:{}\r", child.id());
        *self.child() = Some(child);
        // And not another on its port, because of which it has ended.
        let is_me = async || self.try_command::<String>("INFO", &["server"]).await.is_ok_and(|info| info.contains(&me));
        eventually("Redis answers", is_me).await;
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}{}", self.login, self.port, self.path)
    }

    /// The configuration of a proxy that asks it, and of nodes that all have this port.
    pub fn config(&self, node_port: u16, more: &str) -> String {
        format!(
            "server.workers = 2\ncatalog.kind = \"redis\"\ncatalog.redis.urls = [\"{}\"]\n\
             upstream.address = \"{{node}}:{node_port}\"\n{more}\n",
            self.url()
        )
    }

    /// Stops answering, with all its connections open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends without a word.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            child.kill().expect("it lives");
            child.wait().expect("one's own child");
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child();
        kill_process(Pid::from_child(child.as_ref().expect("it runs")), signal).expect("it lives");
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn connect(&self) -> Result<MultiplexedConnection, redis::RedisError> {
        connect(&self.url()).await
    }

    /// One command on a connection of its own.
    pub async fn command<T: FromRedisValue>(&self, name: &str, arguments: &[&str]) -> T {
        self.try_command(name, arguments).await.expect("an answer")
    }

    pub async fn try_command<T: FromRedisValue>(&self, name: &str, arguments: &[&str]) -> Result<T, redis::RedisError> {
        redis::cmd(name).arg(arguments).query_async(&mut self.connect().await?).await
    }

    /// The sandbox runs there from now on.
    pub async fn put(&self, id: &str, node: &str, execution: &str) {
        self.command::<()>("SET", &[&key(id), &record(node, execution)]).await;
    }

    /// The same, for so many milliseconds.
    pub async fn put_for(&self, id: &str, node: &str, execution: &str, milliseconds: u64) {
        self.command::<()>("SET", &[&key(id), &record(node, execution), "PX", &milliseconds.to_string()]).await;
    }

    pub async fn delete(&self, id: &str) {
        self.command::<()>("DEL", &[&key(id)]).await;
    }

    /// Lookups since it was started, or since the last `CONFIG RESETSTAT`.
    pub async fn lookups(&self) -> usize {
        let stats: String = self.command("INFO", &["commandstats"]).await;
        let get = stats.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
        get.map_or(0, |line| line.split(',').next().expect("a count").parse().expect("a number"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The catalog's key for the sandbox.
pub fn key(id: &str) -> String {
    format!("sandbox:catalog:{id}")
}

/// What E2B's API writes.
pub fn record(node: &str, execution: &str) -> String {
    json!({
        "orchestrator_id": format!("orchestrator-{node}"),
        "orchestrator_ip": node,
        "execution_id": execution,
        "sandbox_started_at": "2026-11-30T10:00:00.123456789Z",
        "sandbox_max_length_in_hours": 24,
    })
    .to_string()
}

/// A writer's connection.
pub async fn connect(url: &str) -> Result<MultiplexedConnection, redis::RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_secs(2)))
        .set_response_timeout(Some(Duration::from_secs(5)));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Free, and so is the one that a cluster's nodes talk by.
pub fn free_port() -> u16 {
    // Below those that the system gives to clients; and none twice.
    static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..1000 {
        let port = fastrand::u16(20_000..32_000);
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        if !taken.contains(&port) && [port, port + 10_000].iter().all(free) {
            taken.push(port);
            return port;
        }
    }
    panic!("no free ports");
}

/// Three masters, each with a replica.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    pub async fn start() -> Self {
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1000",
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
            "--repl-ping-replica-period",
            "1",
        ];
        let nodes: Vec<_> = (0..6).map(|_| Redis::prepare(&arguments, "")).collect();
        for node in &nodes {
            node.restart().await;
        }
        let addresses: Vec<_> = nodes.iter().map(|node| node.address().to_string()).collect();
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&addresses)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .expect("redis-cli");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let this = Self { nodes };
        this.settles().await;
        this
    }

    /// Waits until all agree, and every replica has what its master has.
    pub async fn settles(&self) {
        eventually("the cluster has settled", async || {
            for node in &self.nodes {
                let Ok(info) = node.try_command::<String>("CLUSTER", &["INFO"]).await else { continue };
                let replication: String = node.command("INFO", &["replication"]).await;
                let cut = replication.contains("role:slave") && !replication.contains("master_link_status:up");
                let lonely = replication.contains("role:master") && !info.contains("cluster_known_nodes:6");
                let slots: Value = node.command("CLUSTER", &["SLOTS"]).await;
                // First, last, a master and its replica.
                let whole = |range: &Value| matches!(range, Value::Array(parts) if parts.len() == 4);
                let paired = matches!(&slots, Value::Array(ranges) if ranges.iter().all(whole));
                if !info.contains("cluster_state:ok") || cut || lonely || !paired {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// The master that has the sandbox's key, and its replica.
    pub async fn of(&self, id: &str) -> (&Redis, &Redis) {
        let running = self.nodes.iter().find(|node| node.child().is_some()).expect("one runs");
        let slot: i64 = running.command("CLUSTER", &["KEYSLOT", &key(id)]).await;
        let slots: Value = running.command("CLUSTER", &["SLOTS"]).await;
        let Value::Array(ranges) = slots else { panic!("{slots:?}") };
        for range in ranges {
            let Value::Array(parts) = range else { panic!("{range:?}") };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &parts[..] else { panic!("{parts:?}") };
            if (*first..=*last).contains(&slot) {
                let node = |at: usize| match nodes.get(at) {
                    Some(Value::Array(node)) => match node[1] {
                        Value::Int(port) => self.nodes.iter().find(|node| i64::from(node.port) == port),
                        _ => None,
                    },
                    _ => None,
                };
                let master = node(0).expect("a master");
                return (master, node(1).unwrap_or(master));
            }
        }
        panic!("nobody has slot {slot}");
    }

    /// The sandbox runs there from now on.
    pub async fn put(&self, id: &str, node: &str, execution: &str) {
        self.of(id).await.0.put(id, node, execution).await;
    }

    /// Moves the slot of the sandbox's key, with the key, to another master; tells which. `halfway` is called when the
    /// key has gone and the slot has not.
    pub async fn migrate(&self, id: &str, halfway: impl AsyncFnOnce()) -> &Redis {
        let (from, replica) = self.of(id).await;
        let slot: i64 = from.command("CLUSTER", &["KEYSLOT", &key(id)]).await;
        let slot = slot.to_string();
        let mut to = None;
        for node in &self.nodes {
            let info: String = node.command("INFO", &["replication"]).await;
            if info.contains("role:master") && node.port != from.port && node.port != replica.port {
                to = Some(node);
            }
        }
        let to = to.expect("another master");
        let (from_id, to_id): (String, String) =
            (from.command("CLUSTER", &["MYID"]).await, to.command("CLUSTER", &["MYID"]).await);
        to.command::<()>("CLUSTER", &["SETSLOT", &slot, "IMPORTING", &from_id]).await;
        from.command::<()>("CLUSTER", &["SETSLOT", &slot, "MIGRATING", &to_id]).await;
        let port = to.port.to_string();
        from.command::<()>("MIGRATE", &["127.0.0.1", &port, "", "0", "5000", "KEYS", &key(id)]).await;
        halfway().await;
        for node in [to, from] {
            node.command::<()>("CLUSTER", &["SETSLOT", &slot, "NODE", &to_id]).await;
        }
        to
    }

    /// The configuration of a proxy that asks it.
    pub fn config(&self, node_port: u16, more: &str) -> String {
        let seeds: Vec<_> = self.nodes.iter().take(2).map(|node| format!("\"{}\"", node.url())).collect();
        format!(
            "server.workers = 2\ncatalog.kind = \"redis\"\ncatalog.redis.urls = [{}]\ncatalog.redis.cluster = true\n\
             upstream.address = \"{{node}}:{node_port}\"\n{more}\n",
            seeds.join(", ")
        )
    }
}
