//! TLS handshakes one after the other, each with a small GET, so that the server's tickets have come as well.

use std::{net::SocketAddr, sync::Arc};

use anyhow::ensure;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::TLS13,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::TlsConnector;

use crate::{
    generator::{self, Work},
    peers::HOST,
    sockets,
    upstream::{GREETING, SMALL},
};

/// A client with a memory of its own for tickets, or with none.
pub(crate) struct Handshakes {
    connector: TlsConnector,
    address: SocketAddr,
    wanted: HandshakeKind,
}

impl generator::Client for Handshakes {
    async fn prepare(work: Work, address: SocketAddr) -> anyhow::Result<Self> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Credulous))
            .with_no_client_auth();
        let resumes = matches!(work, Work::Resumed);
        config.resumption = if resumes { Resumption::in_memory_sessions(8) } else { Resumption::disabled() };
        let connector = TlsConnector::from(Arc::new(config));
        let mut this = Self { connector, address, wanted: HandshakeKind::Full };
        // The first ticket; and a proxy that does not speak TLS is found out at once.
        generator::Client::once(&mut this).await?;
        if resumes {
            this.wanted = HandshakeKind::Resumed;
        }
        Ok(this)
    }

    async fn once(&mut self) -> anyhow::Result<()> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let stream = self.connector.connect(ServerName::try_from(HOST)?, socket).await?;
        let kind = stream.get_ref().1.handshake_kind();
        ensure!(kind == Some(self.wanted), "a handshake that was {kind:?}, not {:?}", self.wanted);
        let mut client = sockets::Client(stream);
        let answer = client.get(SMALL, HOST).await?;
        ensure!(answer.body == GREETING, "somebody else answers: {}", answer.body);
        client.0.shutdown().await?;
        Ok(())
    }
}

/// Believes everybody: what a client thinks of certificates is not measured, but would take the proxy's cores.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
