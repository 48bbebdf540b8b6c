//! Floor 2: the control planes that this proxy can ask. Implements the ports of [`crate::sandbox::ports`];
//! only the application knows which of these is at work.

pub mod fixed;
pub mod grpc;
mod http;
pub mod redis;
pub mod rest;

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::{
    config,
    sandbox::ports::{Catalog, CatalogError, Listener, Located, Resumer, Wake, WakeError},
    types::{Placement, Reason, SandboxId},
};

pub use self::{
    fixed::FixedCatalog,
    grpc::GrpcResumer,
    redis::RedisCatalog,
    rest::{RestCatalog, RestResumer},
};

/// Why an adapter could not be made. Names no secret and no URL.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The URL cannot have a path below it, as in `mailto:`.
    #[error("the control plane's URL must be an http or https URL")]
    Url,
    /// The key cannot stand in a header (RFC 9110 §5.5).
    #[error("the control plane's API key has characters that no HTTP header can carry")]
    ApiKey,
    /// The Redis client could not be built.
    #[error("the Redis client could not be built: {0}")]
    Redis(String),
    /// The gRPC client could not be built.
    #[error("the gRPC client could not be built: {0}")]
    Grpc(String),
    /// The HTTP client could not be built.
    #[error("the HTTP client for the control plane could not be built: {0}")]
    Client(String),
}

/// Makes ring the process's provider of TLS cryptography. Call it before any TLS client or server is
/// made; calling it again changes nothing.
pub fn install_tls_provider() {
    // An error says that a provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The catalog that the configuration chose.
#[derive(Debug)]
pub enum AnyCatalog {
    /// `kind = "redis"`
    Redis(RedisCatalog),
    /// `kind = "static"`
    Static(FixedCatalog),
    /// `kind = "rest"`
    Rest(RestCatalog),
}

impl AnyCatalog {
    /// Makes the adapter, whose connections live on `control`. Needs [`install_tls_provider`].
    pub fn new(settings: &config::Catalog, control: &Handle) -> Result<Self, SetupError> {
        Ok(match settings {
            config::Catalog::Redis(redis) => Self::Redis(RedisCatalog::new(redis, control)?),
            config::Catalog::Static(nodes) => Self::Static(FixedCatalog::new(nodes.clone())),
            config::Catalog::Rest(rest) => Self::Rest(RestCatalog::new(rest)?),
        })
    }
}

impl Catalog for AnyCatalog {
    async fn locate(&self, id: &SandboxId) -> Result<Located, CatalogError> {
        match self {
            Self::Redis(catalog) => catalog.locate(id).await,
            Self::Static(catalog) => catalog.locate(id).await,
            Self::Rest(catalog) => catalog.locate(id).await,
        }
    }

    fn tell(&self, listener: Arc<dyn Listener>) {
        match self {
            Self::Redis(catalog) => catalog.tell(listener),
            Self::Static(catalog) => catalog.tell(listener),
            Self::Rest(catalog) => catalog.tell(listener),
        }
    }
}

/// The resumer that the configuration chose.
#[derive(Debug)]
pub enum AnyResumer {
    /// `kind = "none"`: nobody wakes.
    None,
    /// `kind = "grpc"`
    Grpc(GrpcResumer),
    /// `kind = "rest"`
    Rest(RestResumer),
}

impl AnyResumer {
    /// Makes the adapter, whose connections live on `control`. Needs [`install_tls_provider`].
    pub fn new(settings: &config::Resume, control: &Handle) -> Result<Self, SetupError> {
        Ok(match &settings.resumer {
            config::Resumer::None => Self::None,
            config::Resumer::Grpc(grpc) => Self::Grpc(GrpcResumer::new(grpc, settings.call_timeout, control)?),
            config::Resumer::Rest(rest) => Self::Rest(RestResumer::new(rest)?),
        })
    }
}

impl Resumer for AnyResumer {
    fn wakes(&self) -> bool {
        !matches!(self, Self::None)
    }

    async fn resume(&self, wake: &Wake) -> Result<Placement, WakeError> {
        match self {
            Self::None => Err(WakeError::Gone(match &wake.sleep {
                None => Reason::Unknown,
                Some(sleep) => sleep.barred.unwrap_or(Reason::AutoResumeOff),
            })),
            Self::Grpc(resumer) => resumer.resume(wake).await,
            Self::Rest(resumer) => resumer.resume(wake).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sandbox::ports::Sleep,
        types::{Credentials, Port},
    };

    #[tokio::test]
    async fn without_a_resumer_sleep_is_final() {
        let asleep = |barred| Some(Sleep { barred, access: None });
        for (sleep, want) in [
            (None, Reason::Unknown),
            (asleep(None), Reason::AutoResumeOff),
            (asleep(Some(Reason::Expired)), Reason::Expired),
        ] {
            let wake = Wake {
                id: SandboxId::new("a").expect("an id"),
                credentials: Credentials { port: Port::ENVD, traffic_token: None, access_token: None },
                sleep,
            };
            let outcome = AnyResumer::None.resume(&wake).await;
            assert!(matches!(outcome, Err(WakeError::Gone(reason)) if reason == want));
        }
    }

    #[test]
    fn installing_twice_is_harmless() {
        install_tls_provider();
        install_tls_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
