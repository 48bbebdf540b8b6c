//! The whole playground as its users start it, and a client of its domain that speaks HTTP/2.

use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Api, PROGRAM};

const PATIENCE: Duration = Duration::from_secs(20);
const FREE: &str = "127.0.0.1:0";

/// Ended when dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) banner: String,
}

/// `client-proxy dev` with these arguments, on free ports, with a key of its own.
pub(crate) fn command(arguments: &[&str]) -> Command {
    command_by(Command::new(PROGRAM), arguments)
}

/// The same of a command that becomes it.
pub(crate) fn command_by(mut command: Command, arguments: &[&str]) -> Command {
    command.args(["dev", "--api", FREE, "--proxy", FREE, "--health", FREE, "--admin", FREE]).args(arguments);
    command.env_remove("E2B_API_KEY").stdin(Stdio::null()).stderr(Stdio::null());
    command
}

impl Program {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::run(command(arguments)).await
    }

    /// Returns when it has said where everything is.
    pub(crate) async fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (told, banner) = tokio::sync::oneshot::channel();
        // Read to the end: who prints into a closed pipe fails.
        std::thread::spawn(move || {
            let lines = said.by_ref().map_while(Result::ok).take_while(|line| !line.contains("Ctrl-C"));
            let _ = told.send(lines.collect::<Vec<_>>().join("\n"));
            said.for_each(drop);
        });
        let banner = timeout(PATIENCE, banner).await.expect("words in time").expect("words");
        Self { child, banner }
    }

    /// Where one of its doors is: `control API`, `proxy`, `health`, `admin`.
    pub(crate) fn address(&self, door: &str) -> SocketAddr {
        let lines =
            self.banner.lines().filter_map(|line| line.trim().strip_prefix(door)?.trim().strip_prefix("http://"));
        let address = lines.map(|rest| rest.split(['/', ' ']).next().unwrap_or_default()).next();
        address.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("{door}: {}", self.banner))
    }

    /// Its control API, in the clear.
    pub(crate) fn api(&self) -> Api {
        self.api_with(&self.variable("E2B_API_KEY"))
    }

    /// The same where the key is one that it was given.
    pub(crate) fn api_with(&self, key: &str) -> Api {
        let base = format!("http://{}", self.address("control API"));
        Api { client: super::client(), base, key: key.to_owned() }
    }

    /// One's hold on it.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    /// What it says is to be exported.
    pub(crate) fn variable(&self, name: &str) -> String {
        let (_, rest) =
            self.banner.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{name}: {}", self.banner));
        rest.split_ascii_whitespace().next().expect("a value").to_owned()
    }

    /// The files that belong to its domain, by the folder of the bundle.
    pub(crate) fn file(&self, variable: &str) -> PathBuf {
        self.variable(variable).into()
    }

    pub(crate) fn domain(&self) -> Domain {
        let authority = self.variable("E2B_DOMAIN");
        let (name, port) = authority.split_once(':').expect("a port");
        Domain {
            name: name.to_owned(),
            address: (Ipv4Addr::LOCALHOST, port.parse::<u16>().expect("a port")).into(),
            key: self.variable("E2B_API_KEY"),
            client: client(&self.file("SSL_CERT_FILE")),
        }
    }

    /// As by Ctrl-C; returns when it has ended.
    pub(crate) async fn end(mut self) {
        self.signal(Signal::INT);
        let ended = tokio::task::spawn_blocking(move || self.child.wait().map(|status| status.code()));
        assert_eq!(ended.await.expect("waited").expect("ended"), Some(0));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Killed, it would leave its certificate behind.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let _ = self.child.wait();
        }
    }
}

/// Trusts what is in the file.
fn client(bundle: &PathBuf) -> Arc<ClientConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = RootCertStore::empty();
    let all = CertificateDer::pem_file_iter(bundle).expect("a file").map(|one| one.expect("a certificate"));
    roots.add_parsable_certificates(all);
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

pub(crate) struct Domain {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) client: Arc<ClientConfig>,
}

pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Domain {
    /// `LABEL.DOMAIN:PORT`
    pub(crate) fn host(&self, label: &str) -> String {
        format!("{label}.{}:{}", self.name, self.address.port())
    }

    pub(crate) async fn shake(&self, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        TlsConnector::from(self.client.clone()).connect(name, socket).await
    }

    /// A request by HTTP/2 on a connection of its own, made to `LABEL.DOMAIN`.
    pub(crate) async fn send(
        &self,
        method: &str,
        label: &str,
        path: &str,
        body: Value,
        fields: &[(&str, &str)],
    ) -> Told {
        let stream = self.shake(&format!("{label}.{}", self.name)).await.expect("trust");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.expect("HTTP/2");
        let driver = tokio::spawn(connection);
        let uri = format!("https://{}{path}", self.host(label));
        let mut request = Request::builder().version(Version::HTTP_2).method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = request.body(Full::new(body)).expect("a request");
        let answer = timeout(PATIENCE, sender.send_request(request)).await.expect("in time").expect("an answer");
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        driver.abort();
        Told { status, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// A call of the control API.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Told {
        self.send(method, "api", path, body, &[("x-api-key", &self.key)]).await
    }
}
