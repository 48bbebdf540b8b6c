//! E2B's API as a proxy knows it: `proxy.SandboxService/ResumeSandbox` over gRPC.
//!
//! Each sandbox has a script. Dropping the API panics if a step of one is left, or if a call came that none expects.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};

use super::{control_plane::Gate, eventually, listen, own_ip};

#[allow(missing_docs, unreachable_pub, clippy::pedantic, reason = "generated")]
mod proto {
    include!(concat!(env!("OUT_DIR"), "/server/proxy.rs"));
}

use proto::{
    SandboxResumeRequest, SandboxResumeResponse,
    sandbox_service_server::{SandboxService, SandboxServiceServer},
};

/// What is said of a sandbox that is just being paused.
pub const TRANSITIONING: &str = "sandbox is still transitioning";

/// What it does with one call.
#[derive(Clone)]
pub enum Step {
    /// The sandbox runs (now) on the machine of this name.
    Runs(String),
    /// This status and message.
    Fails(Code, String),
    /// No answer ever.
    Hangs,
    /// Cuts the connection.
    Cuts,
    /// First waits for the gate.
    After(Gate, Box<Self>),
    /// First does this.
    Doing(Arc<dyn Fn() + Send + Sync>, Box<Self>),
}

impl Step {
    pub fn runs(node: &str) -> Self {
        Self::Runs(node.into())
    }

    pub fn fails(code: Code, message: &str) -> Self {
        Self::Fails(code, message.into())
    }

    /// It is just being paused.
    pub fn transitioning() -> Self {
        Self::fails(Code::FailedPrecondition, TRANSITIONING)
    }

    /// The same once the gate is open.
    pub fn after(self, gate: &Gate) -> Self {
        Self::After(gate.clone(), Box::new(self))
    }

    /// The same, and this before.
    pub fn doing(self, deed: impl Fn() + Send + Sync + 'static) -> Self {
        Self::Doing(Arc::new(deed), Box::new(self))
    }
}

/// One call as it came.
#[derive(Clone, Debug)]
pub struct Call {
    pub sandbox: String,
    pub metadata: MetadataMap,
}

impl Call {
    /// All values of this name, as bytes.
    pub fn values(&self, name: &str) -> Vec<Vec<u8>> {
        self.metadata.get_all(name).iter().map(|value| value.as_encoded_bytes().to_vec()).collect()
    }

    /// The only value of this name, as text; `None`: it is not there.
    pub fn value(&self, name: &str) -> Option<String> {
        let mut values = self.values(name);
        assert!(values.len() < 2, "{name} came {} times", values.len());
        values.pop().map(|value| String::from_utf8(value).expect("UTF-8"))
    }
}

#[derive(Default)]
struct Script {
    steps: VecDeque<Step>,
    /// What follows the steps.
    then: Option<Step>,
}

#[derive(Default)]
struct State {
    scripts: Mutex<HashMap<String, Script>>,
    calls: Mutex<Vec<Call>>,
    faults: Mutex<Vec<String>>,
    connections: AtomicUsize,
    /// Calls whose callers gave up.
    left: AtomicUsize,
}

/// The API; ends when dropped.
pub struct GrpcApi {
    pub address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    state: Arc<State>,
    task: Mutex<Option<JoinSet<()>>>,
}

impl GrpcApi {
    /// Plain, on a free port of an address of its own.
    pub async fn start() -> Self {
        Self::new(None, &format!("{}:0", own_ip()))
    }

    /// Over TLS as configured (HTTP/2 by ALPN), at this address.
    pub async fn with_tls(tls: ServerConfig, ip: &str) -> Self {
        Self::new(Some(Arc::new(tls)), &format!("{ip}:0"))
    }

    fn new(tls: Option<Arc<ServerConfig>>, address: &str) -> Self {
        let listener = listen(address);
        let address = listener.local_addr().expect("an address");
        let this = Self { address, tls, state: Arc::default(), task: Mutex::default() };
        this.serve(listener);
        this
    }

    fn serve(&self, listener: TcpListener) {
        let (state, tls) = (self.state.clone(), self.tls.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                state.connections.fetch_add(1, SeqCst);
                let service = Service { state: state.clone(), cut: CancellationToken::new() };
                open.spawn(accept(socket, tls.clone(), service));
            }
        });
        *lock(&self.task) = Some(task);
    }

    /// Ends it in the midst of everything: its address refuses connections.
    pub async fn stop(&self) {
        drop(lock(&self.task).take());
        eventually("the API is gone", async || TcpStream::connect(self.address).await.is_err()).await;
    }

    /// Begins again where it was.
    pub async fn restart(&self) {
        self.serve(listen(&self.address.to_string()));
    }

    /// The next calls for this sandbox; each must come, and then no other.
    pub fn resumes(&self, id: &str, steps: impl IntoIterator<Item = Step>) -> &Self {
        let mut scripts = lock(&self.state.scripts);
        let script = scripts.entry(id.to_owned()).or_default();
        assert!(script.steps.is_empty(), "a script is written over another that is not used up");
        *script = Script { steps: steps.into_iter().collect(), then: None };
        drop(scripts);
        self
    }

    /// Every call for this sandbox from now on.
    pub fn always(&self, id: &str, step: Step) -> &Self {
        lock(&self.state.scripts).insert(id.to_owned(), Script { steps: VecDeque::new(), then: Some(step) });
        self
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.state.calls).clone()
    }

    /// How many of them were for this sandbox.
    pub fn calls_for(&self, id: &str) -> usize {
        lock(&self.state.calls).iter().filter(|call| call.sandbox == id).count()
    }

    /// Waits until so many calls for the sandbox have come.
    pub async fn calls_become(&self, id: &str, count: usize) {
        eventually(&format!("{count} calls for {id}"), async || self.calls_for(id) == count).await;
    }

    /// Waits until so many callers that hung have given up.
    pub async fn callers_left(&self, count: usize) {
        eventually(&format!("{count} callers left"), async || self.state.left.load(SeqCst) == count).await;
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(SeqCst)
    }

    /// The part of a proxy's configuration that makes it ask here.
    pub fn config(&self) -> String {
        format!(
            "resume.kind = \"grpc\"\nresume.grpc.address = \"{}\"\nresume.grpc.tls = {}\n",
            self.address,
            self.tls.is_some()
        )
    }
}

impl Drop for GrpcApi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let faults = lock(&self.state.faults);
        assert!(faults.is_empty(), "the API was called against its script: {faults:#?}");
        for (id, script) in &*lock(&self.state.scripts) {
            assert_eq!(script.steps.len(), 0, "calls for {id} that never came");
        }
    }
}

async fn accept(socket: TcpStream, tls: Option<Arc<ServerConfig>>, service: Service) {
    match tls {
        None => drive(socket, service).await,
        Some(tls) => {
            if let Ok(stream) = TlsAcceptor::from(tls).accept(socket).await {
                drive(stream, service).await;
            }
        }
    }
}

async fn drive(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, service: Service) {
    let cut = service.cut.clone();
    let service = TowerToHyperService::new(SandboxServiceServer::new(service));
    let connection =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service);
    tokio::select! {
        _ = connection => {}
        () = cut.cancelled() => {}
    }
}

/// The API as one connection sees it.
struct Service {
    state: Arc<State>,
    cut: CancellationToken,
}

#[tonic::async_trait]
impl SandboxService for Service {
    async fn resume_sandbox(
        &self,
        request: Request<SandboxResumeRequest>,
    ) -> Result<Response<SandboxResumeResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let id = message.sandbox_id;
        lock(&self.state.calls).push(Call { sandbox: id.clone(), metadata });
        let step = lock(&self.state.scripts)
            .get_mut(&id)
            .and_then(|script| script.steps.pop_front().or_else(|| script.then.clone()));
        let Some(mut step) = step else {
            lock(&self.state.faults).push(format!("an unexpected call for {id}"));
            return Err(Status::internal("nobody expected this"));
        };
        loop {
            step = match step {
                Step::Runs(node) => return Ok(Response::new(SandboxResumeResponse { orchestrator_ip: node })),
                Step::Fails(code, message) => return Err(Status::new(code, message)),
                Step::Hangs => {
                    let _leaving = Leaving(&self.state.left);
                    std::future::pending().await
                }
                Step::Cuts => {
                    self.cut.cancel();
                    std::future::pending().await
                }
                Step::After(gate, step) => {
                    gate.opened().await;
                    *step
                }
                Step::Doing(deed, step) => {
                    deed();
                    *step
                }
            };
        }
    }
}

/// Counts whoever drops it.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
