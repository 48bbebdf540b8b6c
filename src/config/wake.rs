//! The table `[wake]`: which traffic may wake a paused sandbox.

use std::time::Duration;

/// `[wake]`
#[derive(Clone, Debug)]
pub struct Wake {
    /// Whether `GET /health` on envd's port wakes, as the SDK's `is_running` sends it.
    pub health_probe: bool,
    /// Paths that do not wake.
    pub ignore_paths: Vec<PathRule>,
    /// Lower-case words in a `User-Agent` that does not wake.
    pub ignore_user_agents: Vec<String>,
    /// Wakes that one client may cause in any minute; 0 = no bound.
    pub max_per_client_per_minute: usize,
    /// Whether a CORS preflight to a sleeping sandbox is answered here.
    pub answer_preflight: bool,
    /// A browser navigation that waits longer gets a page that asks again by itself; `None` = it waits.
    pub page_after: Option<Duration>,
}

/// An entry of `wake.ignore_paths`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// This path and no other.
    Exactly(String),
    /// Every path that begins so; written with `*` at its end.
    Beginning(String),
}

impl PathRule {
    /// Whether the path, without its query, is meant.
    pub fn covers(&self, path: &str) -> bool {
        match self {
            Self::Exactly(rule) => path == rule,
            Self::Beginning(rule) => path.starts_with(rule.as_str()),
        }
    }
}
