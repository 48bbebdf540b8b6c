//! `catalog.kind = "rest"`: `GET /sandboxes/{id}` tells where a sandbox is and under which rules it sleeps.

use http::StatusCode;

use super::{
    detail::Found,
    wire::{Api, Fault},
};
use crate::{
    config,
    control::SetupError,
    sandbox::ports::{Catalog, CatalogError, Located},
    types::SandboxId,
};

/// The control API as catalog.
#[derive(Debug)]
pub struct RestCatalog {
    api: Api,
    node_pointer: String,
}

impl RestCatalog {
    /// Makes the client; asks nothing yet. Needs [`crate::control::install_tls_provider`].
    pub fn new(settings: &config::RestCatalog) -> Result<Self, SetupError> {
        Ok(Self { api: Api::new(&settings.url, &settings.api_key)?, node_pointer: settings.node_pointer.clone() })
    }
}

impl Catalog for RestCatalog {
    async fn locate(&self, id: &SandboxId) -> Result<Located, CatalogError> {
        match look(&self.api, id, &self.node_pointer).await {
            Ok(Found::Running(detail)) => Ok(Located::Running(detail.placement())),
            Ok(Found::Asleep(sleep)) => Ok(Located::Asleep(sleep)),
            Ok(Found::Gone(reason)) => Ok(Located::Gone(reason)),
            Err(fault) => Err(CatalogError(fault)),
        }
    }
}

/// One lookup.
pub(super) async fn look(api: &Api, id: &SandboxId, node_pointer: &str) -> Result<Found, Fault> {
    let found = async {
        let answer = api.detail(id).await?;
        match answer.status {
            StatusCode::OK => Found::read(&answer.json()?, id, node_pointer),
            StatusCode::NOT_FOUND => Ok(Found::Gone(answer.reason()?)),
            _ => Err(answer.unexpected()),
        }
    };
    found.await.map_err(|fault| format!("GET /sandboxes/{id}: {fault}"))
}
