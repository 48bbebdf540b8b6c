//! What the resolver needs of a control plane. `control/` implements these; nothing here knows how.

use std::{future::Future, sync::Arc};

pub use super::lease::{Lease, Watcher};
use crate::types::{Access, Credentials, Placement, Reason, SandboxId};

/// Where a sandbox is, as the catalog tells it.
#[derive(Clone, Debug)]
pub enum Located {
    /// It runs there.
    Running(Placement),
    /// It sleeps, and the catalog says under which rules.
    Asleep(Sleep),
    /// The catalog has nothing: the resumer decides.
    Absent,
    /// There is no such sandbox (any more): final.
    Gone(Reason),
}

/// The rules of a paused sandbox.
#[derive(Clone, Debug)]
pub struct Sleep {
    /// Why traffic may not wake it; `None`: it may.
    pub barred: Option<Reason>,
    /// Its locks; `None` where the catalog does not tell them (the resumer checks).
    pub access: Option<Access>,
}

/// The catalog gave no answer that can be used: down, slow, or nonsense. Not "not found".
#[derive(Clone, Debug, thiserror::Error)]
#[error("the catalog gave no usable answer: {0}")]
pub struct CatalogError(pub String);

/// Where a sandbox is.
pub trait Catalog: Send + Sync + 'static {
    /// Asks once. The resolver bounds the time.
    fn locate(&self, id: &SandboxId) -> impl Future<Output = Result<Located, CatalogError>> + Send;

    /// Tells from now on what changes, if it can. Called once, before anything is asked.
    fn tell(&self, _listener: Arc<dyn Listener>) {}
}

/// Whoever wants to hear of changes.
pub trait Listener: Send + Sync + 'static {
    /// Something about this sandbox changed: what was said of it before is void. For names that nobody asked for,
    /// too, and for those that are no sandbox's. It takes no time and never waits.
    fn changed(&self, sandbox: &str);

    /// How the catalog lets it know whether every change is told.
    fn lease(&self) -> &Arc<Lease>;
}

/// A request to wake a sandbox.
#[derive(Clone, Debug)]
pub struct Wake {
    /// Which one.
    pub id: SandboxId,
    /// On whose behalf.
    pub credentials: Credentials,
    /// What the catalog said of its sleep just now; `None` if it had nothing, so that the resumer
    /// must find out for itself.
    pub sleep: Option<Sleep>,
}

/// Why a sandbox was not woken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WakeError {
    /// It cannot or may not be woken by traffic: final.
    #[error("the sandbox is not there to wake: {}", .0.as_str())]
    Gone(Reason),
    /// These credentials may not wake it.
    #[error("these credentials may not wake the sandbox: {0:?}")]
    Denied(crate::types::Denial),
    /// The team's limit is reached; the text is the control plane's, for its user.
    #[error("the team's limit is reached: {0}")]
    Exhausted(Arc<str>),
    /// It is being paused or snapshotted: ask again soon.
    #[error("the sandbox is still transitioning")]
    Transitioning,
    /// The control plane failed: down, slow, or nonsense.
    #[error("the control plane gave no usable answer: {0}")]
    Unavailable(String),
}

/// Wakes sandboxes.
pub trait Resumer: Send + Sync + 'static {
    /// Whether there is anybody to ask: `false` where every answer is no without a call.
    fn wakes(&self) -> bool {
        true
    }

    /// Asks once; success means that the sandbox runs at the place told. The resolver bounds the time
    /// and repeats after [`WakeError::Transitioning`].
    fn resume(&self, wake: &Wake) -> impl Future<Output = Result<Placement, WakeError>> + Send;
}
