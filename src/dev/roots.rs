//! The roots of all sandboxes, as the children of this process that they are, and what comes to this process when
//! one is gone.

use std::{
    collections::BTreeSet,
    fs, io,
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::getpid;
use tokio::time::Instant;

use super::{
    freeze::{self, MARK},
    proc_tree::{self, Process},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Those of every playground of this process.
pub(crate) static ROOTS: Roots = Roots(Mutex::new(Known { roots: BTreeSet::new(), strangers: BTreeSet::new() }));

pub(crate) struct Roots(Mutex<Known>);

struct Known {
    roots: BTreeSet<Process>,
    /// Sessions that were below this process before there was a sandbox.
    strangers: BTreeSet<i32>,
}

impl Roots {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever has a session of its own below this process now, before there are sandboxes, is none of theirs:
    /// daemons of whoever became this program, children of whoever embeds it. To be called before this process is a
    /// subreaper.
    pub(crate) fn remember_strangers(&self) {
        let mut known = self.known();
        if !known.roots.is_empty() {
            return;
        }
        let (me, all) = (getpid().as_raw_nonzero().get(), proc_tree::scan());
        let below = Process::find(me).map(|me| proc_tree::below(me, &all)).unwrap_or_default();
        known.strangers = below.iter().map(|stat| stat.session).collect();
    }

    /// Starts one. It is known before anybody can take it for something else.
    pub(crate) fn start(&'static self, command: &mut Command) -> io::Result<Root> {
        let mut known = self.known();
        let mut child = command.spawn()?;
        // Not collected yet, so the number is still this child's.
        let Some(process) = i32::try_from(child.id()).ok().and_then(Process::find) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("it cannot be seen in /proc"));
        };
        known.roots.insert(process);
        Ok(Root { roots: self, process, child: Some(child) })
    }

    /// Ends what sandboxes have left whose roots are gone: it came to this process, if that is a subreaper. Whatever
    /// else it is, it is known by this: a child of this process in another session that is no root and no stranger's.
    /// (What this process starts for itself stays in its session, and no process can come into another's; setsid(2).)
    ///
    /// To the first process of a container comes what anybody's programs there leave behind: it ends only what
    /// bears the mark.
    fn kill_orphans(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let orphans = self.orphans();
            if orphans.is_empty() {
                return;
            }
            for orphan in orphans {
                freeze::kill(orphan);
                freeze::reap(orphan);
            }
        }
    }

    /// None is started while this looks.
    fn orphans(&self) -> Vec<Process> {
        let (known, me) = (self.known(), getpid());
        let mut found = proc_tree::scan();
        // Not by getsid(2): where the leader is outside this process's namespace there is no such number.
        let number = me.as_raw_nonzero().get();
        let mine = found.iter().find(|stat| stat.process.pid == number).map(|stat| stat.session);
        found.retain(|stat| {
            stat.parent == number
                && mine.is_some_and(|mine| stat.session != mine)
                && !known.strangers.contains(&stat.session)
                && !known.roots.contains(&stat.process)
                && (!me.is_init() || is_marked(stat.process))
        });
        found.iter().map(|stat| stat.process).collect()
    }
}

/// One root. Dropped, it ends with all that is below it, some time later.
pub(crate) struct Root {
    roots: &'static Roots,
    process: Process,
    /// Until it is ended.
    child: Option<Child>,
}

impl Root {
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// The ways to it, to be taken once.
    pub(crate) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        let child = self.child.as_mut()?;
        child.stdin.take().zip(child.stdout.take())
    }

    /// Returns when no process of it is left. Blocks.
    pub(crate) fn end(mut self, lifeline: Option<ChildStdin>) {
        if let Some(child) = self.child.take() {
            end(self.roots, self.process, child, lifeline);
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let (roots, process) = (self.roots, self.process);
        if let Some(child) = self.child.take() {
            // Not one of the runtime's, which may be ending.
            let _ = thread::Builder::new().spawn(move || end(roots, process, child, None));
        }
    }
}

fn end(roots: &Roots, process: Process, mut child: Child, lifeline: Option<ChildStdin>) {
    freeze::kill(process);
    drop(lifeline);
    let _ = child.wait();
    // Before it is forgotten: while there are roots nobody is taken for a stranger.
    roots.kill_orphans();
    roots.known().roots.remove(&process);
}

/// Whether it was started with the mark of a sandbox in its environment.
fn is_marked(process: Process) -> bool {
    let variables = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
    let name_of = |variable: &[u8]| variable.split(|byte| *byte == b'=').next() == Some(MARK.as_bytes());
    variables.split(|byte| *byte == 0).any(name_of)
}
