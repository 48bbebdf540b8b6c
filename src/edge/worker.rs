//! A worker: one thread, one single-threaded runtime, its own client connections and whatever its server
//! keeps. Sockets reach it through its inbox; the listener gives each to the worker with the fewest.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{sync::mpsc, task::LocalSet};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use super::{
    arrival::{self, Arrival},
    conn::Serve,
    introduction::Introductions,
    room::Place,
    socket::Socket,
    tls::{Certificates, Handshakes},
    watch::Patience,
};
use crate::{shutdown::Shutdown, telemetry::Metrics};

/// A socket on its way to a worker, with its place among `server.max_connections`.
pub(crate) struct Accepted {
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) door: Door,
    pub(crate) place: Place,
    /// The drain waits for it from here on.
    pub(crate) tracked: TaskTrackerToken,
}

/// What a listener's clients speak first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Plain,
    Tls,
}

/// The listener's end of a worker.
#[derive(Clone)]
pub(crate) struct Inbox {
    sockets: mpsc::UnboundedSender<Accepted>,
    load: Arc<AtomicUsize>,
}

impl Inbox {
    /// Connections that the worker has.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Relaxed)
    }

    pub(crate) fn give(&self, accepted: Accepted) {
        self.load.fetch_add(1, Relaxed);
        if self.sockets.send(accepted).is_err() {
            self.load.fetch_sub(1, Relaxed);
        }
    }
}

/// What a worker works with besides its server.
#[derive(Clone)]
pub(crate) struct Tools {
    /// Of connections that begin; swapped by a reload.
    pub(crate) patience: Arc<ArcSwap<Patience>>,
    pub(crate) introductions: Arc<Introductions>,
    pub(crate) certificates: Arc<Certificates>,
    /// How many workers there are.
    pub(crate) workers: usize,
    pub(crate) shutdown: Shutdown,
    pub(crate) metrics: Arc<Metrics>,
    /// Cancelled by a worker that panics.
    pub(crate) broken: CancellationToken,
}

/// What the worker's server does every few seconds besides serving.
pub(crate) trait Upkeep {
    fn upkeep(&self);
}

const UPKEEP: Duration = Duration::from_secs(5);

/// Starts a worker. Its thread ends when all inboxes are gone and its last connection has ended, which it
/// does soon after the cut at the latest.
pub(crate) fn start<S: Serve + Upkeep>(
    number: usize,
    tools: Tools,
    make_server: impl FnOnce() -> S + Send + 'static,
) -> io::Result<(Inbox, JoinHandle<()>)> {
    let (sockets, inbox) = mpsc::unbounded_channel();
    let load = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn({
        let load = load.clone();
        move || {
            let _alarm = Alarm(tools.broken.clone());
            let tools = Tools { shutdown: tools.shutdown.for_worker(), ..tools };
            let local = LocalSet::new();
            local.block_on(&runtime, work(inbox, load, Rc::new(tools), Rc::new(make_server())));
        }
    })?;
    Ok((Inbox { sockets, load }, thread))
}

/// Tells of a worker whose thread panics. (A panic of one connection ends that connection only.)
struct Alarm(CancellationToken);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(thread = std::thread::current().name(), "a worker died, and its connections with it");
            self.0.cancel();
        }
    }
}

async fn work<S: Serve + Upkeep>(
    mut inbox: mpsc::UnboundedReceiver<Accepted>,
    load: Arc<AtomicUsize>,
    tools: Rc<Tools>,
    server: Rc<S>,
) {
    let mut upkeep = tokio::time::interval(UPKEEP);
    let handshakes = Rc::new(Handshakes::default());
    loop {
        tokio::select! {
            accepted = inbox.recv() => match accepted {
                Some(accepted) => {
                    let load = Loaded(load.clone());
                    tokio::task::spawn_local(serve(accepted, load, tools.clone(), handshakes.clone(), server.clone()));
                }
                None => break,
            },
            _ = upkeep.tick() => server.upkeep(),
        }
    }
    // The listeners are gone; what is under way goes on until the drain is over.
    while load.load(Relaxed) > 0 {
        upkeep.tick().await;
    }
}

async fn serve<S: Serve>(
    accepted: Accepted,
    _load: Loaded,
    tools: Rc<Tools>,
    handshakes: Rc<Handshakes>,
    server: Rc<S>,
) {
    let Accepted { socket, peer, door, place, tracked: _tracked } = accepted;
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else { return };
    // A statement of its own: a guard held as long as the connection would make all other loads dear.
    let patience = **tools.patience.load();
    let arrival = Arrival { socket: Socket::new(socket), peer, door, patience };
    arrival::serve(arrival, &tools, &handshakes, place.of() / tools.workers, server).await;
}

/// One connection in a worker's load, until dropped.
struct Loaded(Arc<AtomicUsize>);

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{future::ready, net::IpAddr};

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty, combinators::UnsyncBoxBody};
    use hyper::body::Incoming;

    use super::*;
    use crate::{config::ProxyProtocol, edge::conn::Tunnel, forward::ClientSide};

    /// Answers nothing in particular; its upkeep is the test's.
    pub(in crate::edge) struct Double(pub(in crate::edge) fn());

    impl Serve for Double {
        type Body = UnsyncBoxBody<Bytes, hyper::Error>;
        type Peer = ();
        type Tunnel = Nowhere;

        fn meet(&self, _: IpAddr, _: bool) {}

        fn serve(&self, _: Request<Incoming>, (): &()) -> impl Future<Output = Response<Self::Body>> + use<> {
            ready(Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync()))
        }

        fn tunnel(_: Self::Body) -> Option<Nowhere> {
            None
        }

        fn refused(&self, _: u16) {}
    }

    pub(in crate::edge) struct Nowhere;

    impl Tunnel for Nowhere {
        async fn run<C: ClientSide>(self, _: C, _: Bytes) {}
    }

    impl Upkeep for Double {
        fn upkeep(&self) {
            self.0();
        }
    }

    /// One worker's, with nothing but time.
    pub(in crate::edge) fn tools(time: Duration) -> Tools {
        let metrics = Metrics::new().expect("metrics");
        Tools {
            patience: Arc::new(ArcSwap::from_pointee(Patience { head: time, idle: time })),
            introductions: Arc::new(Introductions { protocol: ProxyProtocol::Off, trusted: Vec::new() }),
            certificates: Certificates::new(Vec::new(), metrics.clone()).expect("keys for tickets"),
            workers: 1,
            shutdown: Shutdown::default(),
            metrics,
            broken: CancellationToken::new(),
        }
    }

    #[tokio::test]
    async fn a_worker_that_panics_sounds_the_alarm() {
        let second = Duration::from_secs(1);
        let tools = tools(second);
        let (_inbox, _thread) = start(0, tools.clone(), || Double(|| panic!("as planned"))).expect("a thread");
        tokio::time::timeout(10 * second, tools.broken.cancelled()).await.expect("the alarm");
    }
}
