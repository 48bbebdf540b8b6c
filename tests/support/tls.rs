//! A certificate authority, and clients that believe it.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use client_proxy::app::install_tls_provider;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, SupportedProtocolVersion,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{Answer, PATIENCE, Proxy, binary::Binary, wire::HOST};

/// Both versions.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Issues certificates into a folder of its own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        install_tls_provider();
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        Self { issuer, folder: TempDir::new().expect("a folder") }
    }

    /// One that has issued `a.pem` for the sandbox of these tests.
    pub fn with_one() -> Self {
        let this = Self::new();
        this.issue("a", &[HOST]);
        this
    }

    /// `NAME.pem` and `NAME.key`, over those that are there.
    pub fn issue(&self, name: &str, hosts: &[&str]) {
        self.issue_until(name, hosts, 2999);
    }

    /// The same, good until that year begins.
    pub fn issue_until(&self, name: &str, hosts: &[&str], year: i32) {
        let (chain, key) = self.pair(hosts, year);
        self.write(&format!("{name}.key"), &key);
        self.write(&format!("{name}.pem"), &chain);
    }

    /// A chain and its key.
    pub fn pair(&self, hosts: &[&str], year: i32) -> (String, String) {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &self.issuer).expect("a certificate");
        (leaf.pem() + &self.issuer.pem(), key.serialize_pem())
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).expect("a file that takes it");
    }

    /// The first certificate of `NAME.pem`.
    pub fn leaf(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).expect("a certificate")
    }

    /// The SHA-256 of its public key, as browsers are told it: base64 of the `SubjectPublicKeyInfo`.
    pub fn key_hash(&self, name: &str) -> String {
        let leaf = self.leaf(name);
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).expect("a certificate");
        STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, leaf.public_key().raw))
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Configuration: a TLS listener that has these certificates.
    pub fn config(&self, names: &[&str]) -> String {
        let pair = |name: &&str| {
            let path = |kind: &str| self.path(&format!("{name}.{kind}")).display().to_string();
            format!("{{ cert = \"{}\", key = \"{}\" }}", path("pem"), path("key"))
        };
        let pairs: Vec<_> = names.iter().map(pair).collect();
        format!("server.tls.listen = [\"127.0.0.1:0\"]\nserver.tls.certificates = [{}]\n", pairs.join(", "))
    }

    /// A client of this ALPN and these versions that believes this authority.
    pub fn client(&self, alpn: &[&str], versions: &[&'static SupportedProtocolVersion]) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Client::new(config, alpn)
    }

    /// The usual one for HTTP/1.1.
    pub fn http1(&self) -> Client {
        self.client(&["http/1.1"], &VERSIONS)
    }
}

/// What a client connects with; its tickets are its own.
#[derive(Clone)]
pub struct Client(pub Arc<ClientConfig>);

pub type Stream = TlsStream<TcpStream>;

impl Client {
    fn new(mut config: ClientConfig, alpn: &[&str]) -> Self {
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    /// One that takes any certificate; with `sni`, it says whose it wants.
    pub fn credulous(sni: bool) -> Self {
        install_tls_provider();
        let mut config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Credulous))
            .with_no_client_auth();
        config.enable_sni = sni;
        Self::new(config, &[])
    }

    pub async fn try_connect(&self, address: SocketAddr, name: &str) -> io::Result<Stream> {
        let socket = TcpStream::connect(address).await?;
        self.shake(socket, name).await
    }

    /// The same over a connection that there is.
    pub async fn shake(&self, socket: TcpStream, name: &str) -> io::Result<Stream> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let shaken = TlsConnector::from(self.0.clone()).connect(name, socket);
        timeout(PATIENCE, shaken).await.expect("a handshake in time")
    }

    /// Connects for the sandbox of these tests.
    pub async fn connect(&self, address: SocketAddr) -> Stream {
        self.try_connect(address, HOST).await.expect("a handshake")
    }
}

/// Where the proxy takes TLS.
pub fn door(proxy: &Proxy) -> SocketAddr {
    proxy.app.addresses().tls[0]
}

/// The same of the program.
pub fn binary_door(proxy: &Binary) -> SocketAddr {
    let serving = proxy.line("serving").expect("it serves");
    let text = serving["addresses"].as_str().expect("addresses");
    let (_, text) = text.split_once("tls: [").expect("a listener");
    text.split(']').next().and_then(|address| address.parse().ok()).expect("an address")
}

/// The certificate that the server showed.
pub fn leaf(stream: &Stream) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().expect("certificates")[0].clone()
}

/// Writes, and reads until the end of a head.
pub async fn ask(stream: &mut Stream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("a peer that reads");
    stream.flush().await.expect("a peer that reads");
    read_until(stream, "\r\n\r\n").await
}

pub async fn read_until(stream: &mut Stream, end: &str) -> String {
    let mut read = String::new();
    while !read.ends_with(end) {
        let byte = timeout(PATIENCE, stream.read_u8()).await.expect("bytes in time");
        read.push(byte.unwrap_or_else(|error| panic!("{error} after {read:?}")).into());
    }
    read
}

/// Reads to the end: an error where that is not told (`close_notify`).
pub async fn rest(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("an end in time")?;
    Ok(rest)
}

/// One request by HTTP/2.
pub async fn get_http2(stream: Stream, path: &str) -> Answer {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    let driver = tokio::spawn(connection);
    let request = Request::get(format!("https://{HOST}{path}")).body(Full::<Bytes>::default()).expect("a request");
    let answer = timeout(PATIENCE, sender.send_request(request)).await.expect("in time").expect("an answer");
    let (head, body) = answer.into_parts();
    let headers: HeaderMap = head.headers;
    let body = body.collect().await.expect("a body").to_bytes();
    driver.abort();
    Answer { status: head.status, headers, body }
}

#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
