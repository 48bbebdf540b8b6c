//! Placeholder: the process is wired elsewhere.

use crate::config::Loaded;

/// Serves until told to end.
pub fn run(_loaded: Loaded) -> anyhow::Result<()> {
    anyhow::bail!("serving is not built in yet")
}
