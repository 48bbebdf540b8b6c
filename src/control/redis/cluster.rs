//! A Redis Cluster: which node has a key, and one link to every node, replicas too. A replica pushes as its master
//! does, so that one that is promoted has been watched all along.
//!
//! Any change of who has what makes everything that is known stale: writes that a failed master had taken and its
//! replica had not are undone without a word.

mod slots;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use self::slots::{Slots, slot_of};
use super::{
    Reply, ask,
    link::Link,
    server::{Address, Servers},
};
use crate::sandbox::ports::{Listener, Watcher};

/// How often the nodes are asked who has what.
const LOOK_EVERY: Duration = Duration::from_millis(900);
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Between two looks, however often somebody wants one.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Nodes that are asked before the seeds are.
const MAX_ASKED: usize = 3;
/// How long the last answer to that is good for; two that fail end it.
const LEASE: Duration = Duration::from_secs(2);
/// Redirections that one lookup follows.
const MAX_REDIRECTIONS: usize = 4;

/// The nodes as last heard of.
#[derive(Clone, Debug, Default)]
struct Nodes {
    slots: Arc<Slots>,
    links: BTreeMap<Address, Arc<Link>>,
    /// Counts the times that they were asked.
    looks: u64,
    /// Why the last time nobody answered.
    trouble: Option<Arc<str>>,
}

/// A cluster that is kept track of until this is dropped.
#[derive(Debug)]
pub(super) struct Cluster {
    nodes: watch::Receiver<Nodes>,
    look: Arc<Notify>,
    scout: AbortHandle,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.scout.abort();
    }
}

/// What a node said to a lookup.
enum Answer {
    Told(Reply),
    /// Another has the slot for good.
    Moved,
    /// The key is on its way to this node, or there already.
    Moving(Address),
}

impl Cluster {
    pub(super) fn start(servers: Servers, seeds: Vec<Address>, listener: Arc<dyn Listener>, control: &Handle) -> Self {
        let (tell, nodes) = watch::channel(Nodes::default());
        let look = Arc::new(Notify::new());
        let watcher = servers.push.then(|| listener.lease().watcher());
        let scout =
            Scout { servers, seeds, listener, watcher, nodes: tell, look: look.clone(), control: control.clone() };
        Self { nodes, look, scout: control.spawn(scout.explore()).abort_handle() }
    }

    /// One lookup, at whichever node has the key. The caller bounds the time.
    pub(super) async fn ask(&self, key: &str) -> Result<Reply, String> {
        let slot = slot_of(key);
        let mut moving_to = None;
        for _ in 0..=MAX_REDIRECTIONS {
            let Nodes { slots, links, looks, trouble } = self.nodes.borrow().clone();
            let node = moving_to.as_ref().or_else(|| slots.master_of(slot));
            let link = node.and_then(|node| links.get(node));
            match (link, trouble) {
                (Some(link), _) => match ask_node(link, key, moving_to.is_some()).await {
                    Ok(Answer::Told(reply)) => return Ok(reply),
                    Ok(Answer::Moved) => moving_to = None,
                    Ok(Answer::Moving(node)) => {
                        let known = links.contains_key(&node);
                        moving_to = Some(node);
                        if known {
                            continue;
                        }
                    }
                    Err(why) => {
                        // The node may be gone, and another have its slots by now.
                        self.look.notify_one();
                        return Err(why);
                    }
                },
                (None, Some(trouble)) => return Err(trouble.to_string()),
                (None, None) => {}
            }
            // Whoever has it is watched before anything of it is believed.
            self.look.notify_one();
            let mut nodes = self.nodes.clone();
            if nodes.wait_for(|nodes| nodes.looks > looks).await.is_err() {
                break;
            }
        }
        Err("no node of the cluster has its slot".into())
    }
}

async fn ask_node(link: &Link, key: &str, moving: bool) -> Result<Answer, String> {
    let connection = link.connection().await?;
    let error = match ask(connection, key, moving).await {
        Ok(reply) => return Ok(Answer::Told(reply)),
        Err(error) => error,
    };
    let kind = error.kind();
    match (kind, target(error.clone())) {
        (ErrorKind::Server(ServerErrorKind::Ask), Some(node)) => Ok(Answer::Moving(node)),
        (ErrorKind::Server(ServerErrorKind::Moved), _) => Ok(Answer::Moved),
        _ => Err(error.to_string()),
    }
}

/// Whom a redirection names: `MOVED 3999 10.0.0.2:6381`. Commands that went together fail together, each with its own.
fn target(error: RedisError) -> Option<Address> {
    let errors = error.into_server_errors()?;
    let (_, first) = errors.first()?;
    Address::read(first.details()?.split_ascii_whitespace().nth(1)?)
}

/// Keeps the list of nodes.
struct Scout {
    servers: Servers,
    seeds: Vec<Address>,
    listener: Arc<dyn Listener>,
    /// Vouches for the list.
    watcher: Option<Watcher>,
    nodes: watch::Sender<Nodes>,
    look: Arc<Notify>,
    control: Handle,
}

impl Scout {
    async fn explore(self) {
        let mut pause = LOOK_PAUSE;
        loop {
            let asked = Instant::now();
            match self.look().await {
                Ok(slots) => {
                    self.take(slots, asked);
                    pause = LOOK_PAUSE;
                }
                Err(why) => {
                    self.give_up(why);
                    pause = (pause * 2).min(LOOK_EVERY);
                }
            }
            tokio::select! {
                () = sleep(LOOK_EVERY.mul_f64(0.8 + fastrand::f64() * 0.2)) => {}
                // However many lookups ask for it.
                () = async { tokio::join!(self.look.notified(), sleep(pause.mul_f64(0.5 + fastrand::f64()))); } => {}
            }
        }
    }

    /// Asks one node after the other who has what: those that are known, from a random one on, then the seeds.
    async fn look(&self) -> Result<Slots, String> {
        let known: Vec<_> = self.nodes.borrow().links.clone().into_iter().collect();
        let first = fastrand::usize(..known.len().max(1));
        let (before, from) = known.split_at(first.min(known.len()));
        let mut trouble = "no node is known".to_owned();
        for (address, link) in from.iter().chain(before).take(MAX_ASKED) {
            match timeout(LOOK_LIMIT, async { slots::ask(link.connection().await?, address).await }).await {
                Ok(Ok(slots)) => return Ok(slots),
                Ok(Err(why)) => trouble = format!("{address}: {why}"),
                Err(_) => trouble = format!("{address}: no answer in time"),
            }
        }
        for seed in &self.seeds {
            let asked = async {
                let opened = self.servers.connect(seed, |_| {}).await;
                let (connection, _) = opened.map_err(|error| error.to_string())?;
                timeout(LOOK_LIMIT, slots::ask(connection, seed)).await.map_err(|_| "no answer in time")?
            };
            match asked.await {
                Ok(slots) => return Ok(slots),
                Err(why) => trouble = format!("{seed}: {why}"),
            }
        }
        Err(trouble)
    }

    fn take(&self, slots: Slots, asked: Instant) {
        let before = self.nodes.borrow().clone();
        let changed = *before.slots != slots;
        let (mut links, mut slots_now) = (before.links, before.slots);
        if changed {
            // New ones first: from now on, and before anybody asks them, there is no term without their word.
            let nodes = slots.nodes();
            links.retain(|address, _| nodes.contains(address));
            for address in nodes {
                links.entry(address.clone()).or_insert_with(|| {
                    let listener = self.listener.clone();
                    Arc::new(Link::start(self.servers.clone(), address.clone(), listener, &self.control))
                });
            }
            tracing::info!(nodes = links.len(), "the Redis cluster's nodes, or what they have, changed");
            slots_now = Arc::new(slots);
        }
        self.nodes.send_modify(|nodes| {
            *nodes = Nodes { slots: slots_now, links, looks: nodes.looks + 1, trouble: None };
        });
        if let Some(watcher) = &self.watcher {
            if changed {
                watcher.all_changed();
            }
            watcher.vouch(asked + LEASE);
        }
    }

    /// What is known of the nodes stays, for want of better; nothing is vouched for once the last answer is too old.
    fn give_up(&self, why: String) {
        let told = self.nodes.borrow().trouble.as_deref() == Some(&*why);
        if !told {
            tracing::warn!(why, "no node of the Redis cluster tells who has what");
        }
        self.nodes.send_modify(|nodes| {
            nodes.looks += 1;
            nodes.trouble = Some(why.into());
        });
    }
}
