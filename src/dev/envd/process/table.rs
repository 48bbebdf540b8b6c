//! The processes that run, by number and tag.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
};

use rustix::process::Pid;

use super::{messages::Selector, number, running::Running};
use crate::dev::envd::rpc::{Code, Error};

/// Processes at once. Each has up to three pipes, and the agent as many descriptors as its user allows.
const LIMIT: usize = 256;

#[derive(Default)]
pub(crate) struct Processes {
    /// Somebody has looked whether the machine lets programs have the sandbox's root.
    pub(super) looked: AtomicBool,
    running: Mutex<BTreeMap<u32, Arc<Running>>>,
}

impl Processes {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_room(&self) -> Result<(), Error> {
        if self.running().len() < LIMIT {
            return Ok(());
        }
        Err(Error::new(Code::ResourceExhausted, format!("{LIMIT} processes run already")))
    }

    pub(super) fn add(&self, running: Arc<Running>) {
        self.running().insert(number(running.pid), running);
    }

    pub(super) fn remove(&self, pid: Pid) {
        self.running().remove(&number(pid));
    }

    pub(super) fn all(&self) -> Vec<Arc<Running>> {
        self.running().values().cloned().collect()
    }

    pub(super) fn find(&self, wanted: &Selector) -> Result<Arc<Running>, Error> {
        let running = self.running();
        let is_wanted = |running: &&Arc<Running>| match wanted {
            Selector::Pid(pid) => number(running.pid) == *pid,
            Selector::Tag(tag) => running.tag.as_ref() == Some(tag),
        };
        running.values().find(is_wanted).cloned().ok_or_else(|| Self::gone(wanted))
    }

    pub(super) fn gone(wanted: &Selector) -> Error {
        let text = match wanted {
            Selector::Pid(pid) => format!("process with pid {pid} not found"),
            Selector::Tag(tag) => format!("process with tag {tag} not found"),
        };
        Error::new(Code::NotFound, text)
    }
}
