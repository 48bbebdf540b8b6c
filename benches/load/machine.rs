//! What the machine gives: cores, descriptors, programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// The machine, as far as the figures depend on it.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) kernel: String,
    /// Threads of every peer.
    pub(crate) cores: usize,
    /// Files that one process may have open.
    pub(crate) descriptors: u64,
}

/// Descriptors that a proxy has beside those of measured connections, with room to spare.
const OTHER_DESCRIPTORS: u64 = 1000;

impl Machine {
    /// Raises the limit on open files, for all processes to come, and looks round.
    pub(crate) fn prepare() -> anyhow::Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).context("the limit on open files")?;
        fs::read("/proc/self/schedstat").context("CPU time is read from /proc/PID/task/*/schedstat")?;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Self {
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cores: available_parallelism()?.get(),
            // Unlimited is more than any scenario wants.
            descriptors: limit.maximum.unwrap_or(1 << 20),
        })
    }

    /// As many of the `wanted` connections as a proxy can have that needs two descriptors for each.
    pub(crate) fn fit(&self, wanted: usize) -> usize {
        wanted.min(self.room() / 2)
    }

    /// As many of the `wanted` streams of each connection as a proxy can have that needs a descriptor for each, and
    /// one for the connection.
    pub(crate) fn fit_streams(&self, connections: usize, wanted: usize) -> usize {
        wanted.min(self.room().saturating_sub(connections) / connections)
    }

    fn room(&self) -> usize {
        usize::try_from(self.descriptors.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX)
    }
}

/// A load generator that is not ours.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    /// Debian's, which has it.
    pub(crate) package: &'static str,
    /// What the report says where it is not.
    pub(crate) skipped: &'static str,
}

impl Tool {
    pub(crate) fn installed(&self) -> bool {
        find(self.program).is_some()
    }
}

/// Where a program is installed; daemons are, where a user's PATH does not lead.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| Path::is_file(file))
}
