//! The roots of all sandboxes, as the children of this process that they are.

use std::{
    collections::BTreeSet,
    io,
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::proc_tree::{Process, Stat};

/// Those of every playground of this process.
pub(crate) static ROOTS: Roots = Roots(Mutex::new(BTreeSet::new()));

pub(crate) struct Roots(Mutex<BTreeSet<Process>>);

impl Roots {
    fn all(&self) -> MutexGuard<'_, BTreeSet<Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one. It is known before anybody can take it for something else.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<(Child, Process)> {
        let mut all = self.all();
        let child = command.spawn()?;
        // Not collected yet, so the number is still this child's.
        let found = i32::try_from(child.id()).ok().and_then(Process::find);
        let root = found.ok_or_else(|| io::Error::other("it ended at once"))?;
        all.insert(root);
        Ok((child, root))
    }

    /// It has ended, and was collected.
    pub(crate) fn ended(&self, root: Process) {
        self.all().remove(&root);
    }

    /// Those of the processes that are none; none is started while `look` looks.
    pub(crate) fn others(&self, look: impl FnOnce() -> Vec<Stat>) -> Vec<Stat> {
        let all = self.all();
        let mut found = look();
        found.retain(|stat| !all.contains(&stat.process));
        found
    }
}
