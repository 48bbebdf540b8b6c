//! Who waits for whose exit. Orphans of the sandbox come to the agent, so exits are collected by number
//! (wait(2) for any child), and whoever started a child is told of its end from here. Nobody else may wait.

use std::{
    collections::HashMap,
    io,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// A child that runs; its pipes are in `child`, whose own ways of waiting must not be used.
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) child: Child,
    pub(crate) exit: oneshot::Receiver<ExitStatus>,
}

/// The children of this process that somebody waits for.
#[derive(Default)]
pub(crate) struct Children {
    /// Held while one is started, so that no exit comes before its entry; while exits are collected, so
    /// that a number here is never that of a process that is gone.
    waited_for: Mutex<HashMap<Pid, oneshot::Sender<ExitStatus>>>,
}

impl Children {
    fn waited_for(&self) -> MutexGuard<'_, HashMap<Pid, oneshot::Sender<ExitStatus>>> {
        self.waited_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Started> {
        let mut waited_for = self.waited_for();
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the child has no number"))?;
        let (told, exit) = oneshot::channel();
        waited_for.insert(pid, told);
        Ok(Started { pid, child, exit })
    }

    /// Whether there was somebody to take the signal.
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) -> io::Result<bool> {
        // Not collected yet, so the number is still this child's.
        let waited_for = self.waited_for();
        if !waited_for.contains_key(&pid) {
            return Ok(false);
        }
        kill_process(pid, signal)?;
        Ok(true)
    }

    fn collect_now(&self) {
        let mut waited_for = self.waited_for();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(told) = waited_for.remove(&pid) {
                let _ = told.send(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }

    /// Collects exits as long as the process lives; without this, orphans would stay zombies.
    pub(crate) async fn collect(&self) {
        let Ok(mut exits) = signal(SignalKind::child()) else {
            return;
        };
        loop {
            self.collect_now();
            // A signal that came before the stream was there is not told again.
            let _ = tokio::time::timeout(Duration::from_secs(1), exits.recv()).await;
        }
    }
}
