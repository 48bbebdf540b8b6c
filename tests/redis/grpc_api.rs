//! E2B's API, as far as it wakes: `proxy.SandboxService/ResumeSandbox`, answered call by call as a script says.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{net::TcpStream, runtime::Runtime};
use tonic::{
    Code, Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use self::wire::{
    SandboxResumeRequest, SandboxResumeResponse,
    sandbox_service_server::{SandboxService, SandboxServiceServer},
};
use crate::support::eventually;

#[expect(clippy::pedantic, unreachable_pub, reason = "generated")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/server/proxy.rs"));
}

/// What it does with one call.
#[derive(Clone)]
pub enum Say {
    /// Runs on this node, as it is written.
    Node(&'static str),
    Status(Code, &'static str),
    /// No answer ever.
    Hang,
    /// Does this first.
    Doing(Arc<dyn Fn() -> futures_util::future::BoxFuture<'static, ()> + Send + Sync>, Box<Self>),
}

impl Say {
    /// The same, and this before.
    pub fn doing<F: Future<Output = ()> + Send + 'static>(self, deed: impl Fn() -> F + Send + Sync + 'static) -> Self {
        Self::Doing(Arc::new(move || Box::pin(deed())), Box::new(self))
    }
}

/// The words for "ask again soon".
pub const TRANSITIONING: Say = Say::Status(Code::FailedPrecondition, "sandbox is still transitioning");

/// What a call carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub sandbox: String,
    pub port: String,
    pub traffic_token: Option<String>,
    pub access_token: Option<String>,
    pub authorization: Option<String>,
    /// `grpc-timeout`
    pub timeout: Option<String>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Say>,
    /// What follows the script.
    then: Option<Say>,
    calls: Vec<Call>,
    faults: Vec<String>,
}

/// The API; ends when dropped.
pub struct GrpcApi {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    identity: Option<Identity>,
    /// Of its own: what is served ends with it, as with a process that is killed.
    running: Mutex<Option<Runtime>>,
}

impl GrpcApi {
    /// In the clear, on a free port; every step must come, and no other.
    pub fn start(script: impl IntoIterator<Item = Say>) -> Self {
        Self::new(script, None, None)
    }

    /// Over TLS, with this chain and key in PEM.
    pub fn start_tls(script: impl IntoIterator<Item = Say>, chain: &str, key: &str) -> Self {
        Self::new(script, None, Some(Identity::from_pem(chain, key)))
    }

    /// Every call is answered so.
    pub fn always(say: Say) -> Self {
        Self::new([], Some(say), None)
    }

    fn new(script: impl IntoIterator<Item = Say>, then: Option<Say>, identity: Option<Identity>) -> Self {
        let state = State { script: script.into_iter().collect(), then, ..State::default() };
        let mut this = Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            state: Arc::new(Mutex::new(state)),
            identity,
            running: Mutex::new(None),
        };
        this.address = this.run();
        this
    }

    fn run(&self) -> SocketAddr {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let inside = runtime.enter();
        let incoming = TcpIncoming::bind(self.address).expect("a free port").with_nodelay(Some(true));
        let address = incoming.local_addr().expect("an address");
        let mut server = Server::builder();
        if let Some(identity) = &self.identity {
            server = server.tls_config(ServerTlsConfig::new().identity(identity.clone())).expect("an identity");
        }
        let service = SandboxServiceServer::new(Service(self.state.clone()));
        runtime.spawn(server.add_service(service).serve_with_incoming(incoming));
        drop(inside);
        *self.running() = Some(runtime);
        address
    }

    /// Ends it with all its connections: its address refuses.
    pub async fn stop(&self) {
        self.end();
        eventually("the API is gone", async || TcpStream::connect(self.address).await.is_err()).await;
    }

    fn end(&self) {
        if let Some(runtime) = self.running().take() {
            runtime.shutdown_background();
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins again where it was.
    pub fn restart(&self) {
        self.run();
    }

    /// More steps of the script.
    pub fn says(&self, script: impl IntoIterator<Item = Say>) {
        self.state().script.extend(script);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Waits until so many calls came.
    pub async fn calls_become(&self, count: usize) {
        eventually(&format!("{count} calls"), async || self.state().calls.len() == count).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration of a proxy that asks it.
    pub fn config(&self) -> String {
        format!("resume.kind = \"grpc\"\nresume.grpc.address = \"{}\"\n", self.address)
    }
}

impl Drop for GrpcApi {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            return;
        }
        let state = self.state();
        assert!(state.faults.is_empty(), "it was called against its script: {:?}", state.faults);
        assert_eq!(state.script.len(), 0, "calls that never came");
    }
}

struct Service(Arc<Mutex<State>>);

#[tonic::async_trait]
impl SandboxService for Service {
    async fn resume_sandbox(
        &self,
        request: Request<SandboxResumeRequest>,
    ) -> Result<Response<SandboxResumeResponse>, Status> {
        let metadata = request.metadata();
        let of = |name: &str| metadata.get(name).map(|value| value.to_str().expect("text").to_owned());
        let call = Call {
            sandbox: request.get_ref().sandbox_id.clone(),
            port: of("e2b-sandbox-request-port").unwrap_or_default(),
            traffic_token: of("e2b-traffic-access-token"),
            access_token: of("e2b-envd-access-token"),
            authorization: of("authorization"),
            timeout: of("grpc-timeout"),
        };
        let mut say = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let say = state.script.pop_front().or_else(|| state.then.clone());
            if say.is_none() {
                state.faults.push(format!("{call:?}"));
            }
            state.calls.push(call);
            say.unwrap_or(Say::Status(Code::Internal, "not in the script"))
        };
        loop {
            match say {
                Say::Node(node) => {
                    return Ok(Response::new(SandboxResumeResponse { orchestrator_ip: node.to_owned() }));
                }
                Say::Status(code, message) => return Err(Status::new(code, message)),
                Say::Hang => std::future::pending().await,
                Say::Doing(deed, then) => {
                    deed().await;
                    say = *then;
                }
            }
        }
    }
}
