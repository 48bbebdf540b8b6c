//! All sandboxes of a playground, and the ground they stand on: addresses, places, processes.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    agent::{self, Application, Order},
    interpreter::{self, python::Python},
    lifecycle::Policy,
    options::{BUILT_IN, Options, Template},
    process::{Spawner, StartError, Tree},
    random::random_name,
    remove::{self, Remover},
    sandbox::{Facts, Fault, Sandbox},
};
use crate::types::{Reason, SandboxId};

/// Ended sandboxes whose end is remembered; older ones are unknown.
const ENDED_KEPT: usize = 1000;
/// 127.64.0.0/10: far from what people use by hand, and with room for playgrounds side by side.
const FIRST_ADDRESS: u32 = 0x7F40_0000;
const ADDRESSES: u32 = 1 << 22;
const ADDRESS_TRIES: usize = 1000;

/// What all sandboxes share.
pub(crate) struct Ground {
    pub(crate) pause_delay: Duration,
    pub(crate) resume_delay: Duration,
    pub(crate) transition_wait: Duration,
    retention: Option<Duration>,
    deny: bool,
    team_limit: usize,
    places: Arc<Semaphore>,
    templates: Vec<Template>,
    python: Python,
    /// That of `--tls`.
    domain: Option<String>,
    spawner: Spawner,
    next_address: AtomicU32,
    folder: PathBuf,
    pub(crate) remover: Remover,
}

impl Ground {
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let resume_delay =
            options.resume_delay.unwrap_or(if options.demo { Duration::from_millis(300) } else { Duration::ZERO });
        let team_limit = options.team_limit.unwrap_or(Semaphore::MAX_PERMITS);
        let folder = std::env::temp_dir().join(format!("client-proxy-dev-{}", random_name(12)?));
        let program = options.agent_program.clone().unwrap_or_else(agent::program);
        Ok(Self {
            pause_delay: options.pause_delay.unwrap_or_default(),
            resume_delay,
            transition_wait: options.transition_wait,
            retention: options.retention,
            deny: options.deny,
            team_limit,
            places: Arc::new(Semaphore::new(team_limit.min(Semaphore::MAX_PERMITS))),
            templates: options.templates.clone(),
            python: Python::new(options.python.as_deref()),
            domain: options.addresses().tls.map(|_| options.domain.clone()),
            spawner: Spawner::new(program, options.command_wait)?,
            next_address: AtomicU32::new(fastrand::u32(0..ADDRESSES)),
            folder,
            remover: Remover::new(options.remove_delay),
        })
    }

    /// A place among those that may run at once.
    pub(crate) fn place_for(&self, traffic: bool) -> Result<OwnedSemaphorePermit, Fault> {
        if traffic && self.deny {
            return Err(Fault::NotAllowListed);
        }
        let place = self.places.clone().try_acquire_owned();
        place.map_err(|_| Fault::TeamLimit(self.team_limit))
    }

    fn knows(&self, template: &str) -> bool {
        BUILT_IN.contains(&template) || self.templates.iter().any(|known| known.name == template)
    }

    async fn application(&self, template: &str) -> Result<Application, StartError> {
        Ok(match template {
            "base" => Application::Nothing,
            "counter" => Application::Counter,
            interpreter::TEMPLATE => Application::Interpreter(interpreter::Wanted {
                python: self.python.find().await.map_err(StartError::Failed)?,
                domain: self.domain.clone(),
            }),
            _ => {
                let found = self.templates.iter().find(|known| known.name == template);
                let found = found.ok_or_else(|| StartError::Failed("its template is gone".to_owned()))?;
                Application::Command(found.command.clone())
            }
        })
    }

    /// The names for a message to somebody who asked for another.
    pub(crate) fn template_names(&self) -> String {
        let own = self.templates.iter().map(|template| template.name.as_str());
        let all: Vec<&str> = BUILT_IN.into_iter().chain(own).collect();
        all.join(", ")
    }

    /// Where all their files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts the processes of a sandbox at the next free address.
    pub(crate) async fn start(&self, facts: &Facts) -> Result<Tree, StartError> {
        let application = self.application(&facts.template).await?;
        // Made with the first sandbox, so that nothing is left where there was none.
        for folder in ["home/user", "tmp"] {
            tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(facts.folder.join(folder)).await?;
        }
        let mut order = Order {
            id: facts.id.to_string(),
            ip: Ipv4Addr::LOCALHOST,
            folder: facts.folder.clone(),
            access_token: facts.envd_token.clone(),
            application,
            environment: facts.environment.clone(),
        };
        for _ in 0..ADDRESS_TRIES {
            order.ip = self.next_address();
            match self.spawner.start(&order).await {
                Err(StartError::AddressTaken) => {}
                outcome => return outcome,
            }
        }
        Err(StartError::AddressTaken)
    }

    /// The first and the last of a network have meanings elsewhere; people do not expect them.
    fn next_address(&self) -> Ipv4Addr {
        loop {
            let offset = self.next_address.fetch_add(1, Ordering::Relaxed) % ADDRESSES;
            if !matches!(offset % 256, 0 | 255) {
                return Ipv4Addr::from(FIRST_ADDRESS + offset);
            }
        }
    }
}

/// What somebody who creates a sandbox decides.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) template: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) private: bool,
    pub(crate) internet: Option<bool>,
    pub(crate) network: Map<String, Value>,
    pub(crate) policy: Policy,
}

/// Why there is no new sandbox.
pub(crate) enum CreateFault {
    UnknownTemplate,
    Fault(Fault),
}

pub(crate) struct Sandboxes {
    pub(crate) ground: Arc<Ground>,
    known: Mutex<Known>,
    created: AtomicU64,
}

#[derive(Default)]
struct Known {
    alive: HashMap<SandboxId, Arc<Sandbox>>,
    ended: HashMap<SandboxId, Reason>,
    /// The order in which the ended ones are forgotten.
    order: VecDeque<SandboxId>,
    closed: bool,
}

impl Sandboxes {
    pub(crate) fn new(ground: Ground) -> Self {
        Self { ground: Arc::new(ground), known: Mutex::default(), created: AtomicU64::new(0) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn create(self: &Arc<Self>, wish: Wish) -> Result<Arc<Sandbox>, CreateFault> {
        let failed = |error: String| CreateFault::Fault(Fault::Failed(error));
        if !self.ground.knows(&wish.template) {
            return Err(CreateFault::UnknownTemplate);
        }
        self.ground.remover.has_place().await;
        let place = self.ground.place_for(false).map_err(CreateFault::Fault)?;
        let name = |length| random_name(length).map_err(|error| failed(error.to_string()));
        let id = SandboxId::new(&format!("i{}", name(19)?)).ok_or_else(|| failed("no name".to_owned()))?;
        let traffic_token = wish.private.then(|| name(40)).transpose()?;
        let facts = Facts {
            folder: self.ground.folder().join(id.as_str()),
            id,
            number: self.created.fetch_add(1, Ordering::Relaxed),
            template: wish.template,
            metadata: wish.metadata,
            environment: wish.environment,
            envd_token: name(40)?,
            traffic_token,
            internet: wish.internet,
            network: wish.network,
            policy: Policy { retention: self.ground.retention, ..wish.policy },
        };
        let started = self.ground.start(&facts).await;
        let tree = match started {
            Ok(tree) => tree,
            Err(error) => {
                self.ground.remover.discard(facts.folder).await;
                return Err(failed(error.to_string()));
            }
        };
        let sandbox = Arc::new(Sandbox::new(facts, tree, place, self.ground.remover.clone()));
        let closed = {
            let mut known = self.known();
            known.alive.insert(sandbox.facts.id.clone(), sandbox.clone());
            known.closed
        };
        sandbox.watch_root().await;
        tokio::spawn(self.clone().keep(sandbox.clone()));
        if closed {
            let _ = sandbox.end(Reason::Killed).await;
            return Err(failed("the playground is ending".to_owned()));
        }
        Ok(sandbox)
    }

    /// Keeps a sandbox's time, and what is to be remembered of it after its end.
    async fn keep(self: Arc<Self>, sandbox: Arc<Sandbox>) {
        let reason = sandbox.clone().keep_time(self.ground.clone()).await;
        let id = &sandbox.facts.id;
        let mut known = self.known();
        known.alive.remove(id);
        known.ended.insert(id.clone(), reason);
        known.order.push_back(id.clone());
        if known.order.len() > ENDED_KEPT
            && let Some(oldest) = known.order.pop_front()
        {
            known.ended.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, id: &str) -> Result<Arc<Sandbox>, Reason> {
        let known = self.known();
        known.alive.get(id).cloned().ok_or_else(|| known.ended.get(id).copied().unwrap_or(Reason::Unknown))
    }

    /// The newest first.
    pub(crate) fn list(&self) -> Vec<Arc<Sandbox>> {
        let mut all: Vec<_> = self.known().alive.values().cloned().collect();
        all.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.facts.number));
        all
    }

    /// Ends all sandboxes, and those that are being created; returns when nothing is left.
    pub(crate) async fn close(&self) {
        self.known().closed = true;
        self.ground.remover.hold_up_nobody();
        let ends: Vec<_> =
            self.list().into_iter().map(|sandbox| tokio::spawn(async move { sandbox.end_and_clear().await })).collect();
        for end in ends {
            let _ = end.await;
        }
        self.ground.remover.finish().await;
        remove::clear(self.ground.folder().to_owned()).await;
    }
}
