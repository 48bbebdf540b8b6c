//! The channel to the API: one HTTP/2 connection, opened when it is needed and again when it broke.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    net::TcpStream,
    runtime::Handle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::{
    config,
    control::{SetupError, http::with_causes},
};

/// A new connection, its name's resolution and TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A peer that says nothing is asked for a sign of life. Servers in Go bear, unless told otherwise, three pings within
/// five minutes and hang up at the next: a call of two minutes has no more, and is never cut for them. An idle
/// connection may be; the next call opens another.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the kernel waits for a host to acknowledge what was sent to it.
const ACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Calls that wait for a connection are tried one after the other. When one has found that there is none, those behind
/// it are told so at once instead of each finding out for itself.
const FAILURE_REMEMBERED: Duration = Duration::from_millis(100);

/// Makes the channel, whose connections live on `control`.
pub(super) fn open(settings: &config::GrpcResume, control: &Handle) -> Result<Channel, SetupError> {
    let unfit = |what: &str| SetupError::Grpc(what.into());
    let scheme = if settings.tls { "https" } else { "http" };
    let uri: Uri = format!("{scheme}://{}/", settings.address)
        .parse()
        .map_err(|_| unfit("resume.grpc.address is no host:port"))?;
    if uri.port_u16().is_none() {
        return Err(unfit("resume.grpc.address is no host:port"));
    }
    let tls = if settings.tls {
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| unfit("resume.grpc.address is no host:port"))?;
        Some((TlsConnector::from(Arc::new(tls(settings.ca.as_deref())?)), name))
    } else {
        None
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_tcp_user_timeout(Some(ACKNOWLEDGED));
    let endpoint = Endpoint::from(uri)
        .user_agent(concat!("client-proxy/", env!("CARGO_PKG_VERSION")))
        .map_err(|_| unfit("its name is no header"))?
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    // Its task is spawned here.
    let _guard = control.enter();
    Ok(Channel::new(Connector { tcp, tls, failed: Arc::default() }, endpoint))
}

fn tls(ca: Option<&[u8]>) -> Result<ClientConfig, SetupError> {
    let unfit = |what: String| SetupError::Grpc(what);
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| unfit(format!("resume.grpc.ca_base64: {error}")))?;
                roots.add(certificate).map_err(|error| unfit(format!("resume.grpc.ca_base64: {error}")))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let whose = if ca.is_some() { "resume.grpc.ca_base64 has" } else { "the system has" };
        return Err(unfit(format!("{whose} no certificate of an authority")));
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) struct Unreachable(Arc<str>);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection: {}", self.0)
    }
}

impl Error for Unreachable {}

/// Opens connections.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    failed: Arc<Mutex<Option<(Instant, Unreachable)>>>,
}

type Io = TokioIo<Either<TcpStream, TlsStream<TcpStream>>>;

impl Service<Uri> for Connector {
    type Response = Io;
    type Error = Unreachable;
    type Future = Pin<Box<dyn Future<Output = Result<Io, Unreachable>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unreachable>> {
        // That of the TCP connector has no state.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            let failed = this.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match failed {
                Some((at, fault)) if at.elapsed() < FAILURE_REMEMBERED => return Err(fault),
                _ => {}
            }
            let connected = timeout(CONNECT_TIMEOUT, this.connect(uri)).await;
            let connected = connected.unwrap_or_else(|elapsed| Err(elapsed.to_string()));
            connected.map_err(|error| {
                let fault = Unreachable(error.into());
                let mut failed = this.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.insert((Instant::now(), fault)).1.clone()
            })
        })
    }
}

impl Connector {
    async fn connect(&mut self, uri: Uri) -> Result<Io, String> {
        let tcp = self.tcp.call(uri).await.map_err(|error| with_causes(&error))?.into_inner();
        let Some((tls, name)) = &self.tls else { return Ok(TokioIo::new(Either::Left(tcp))) };
        let stream = tls.connect(name.clone(), tcp).await.map_err(|error| format!("TLS: {error}"))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err("TLS: the server does not offer HTTP/2 by ALPN".into());
        }
        Ok(TokioIo::new(Either::Right(stream)))
    }
}
