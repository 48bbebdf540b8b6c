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
    remove,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// What an agent has for the end of its sandbox, files and all, when nobody waits for that.
const GRACE: Duration = remove::LONGEST.saturating_add(Duration::from_mins(1));

/// Those of every playground of this process.
pub(crate) static ROOTS: Roots = Roots::new();

pub(crate) struct Roots(Mutex<Known>);

struct Known {
    roots: BTreeSet<Process>,
    /// What was below this process before there was a sandbox, and its sessions.
    strangers: BTreeSet<Process>,
    sessions: BTreeSet<i32>,
}

impl Roots {
    const fn new() -> Self {
        Self(Mutex::new(Known { roots: BTreeSet::new(), strangers: BTreeSet::new(), sessions: BTreeSet::new() }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever is below this process now, before there are sandboxes, is none of theirs, nor is what it leaves in its
    /// sessions: daemons of whoever became this program, which may not have a session of their own yet, children of
    /// whoever embeds it. To be called before this process is a subreaper. Does nothing while there are sandboxes.
    pub(crate) fn remember_strangers(&self) {
        let mut known = self.known();
        if !known.roots.is_empty() {
            return;
        }
        let (me, all) = (getpid().as_raw_nonzero().get(), proc_tree::scan());
        let below = Process::find(me).map(|me| proc_tree::below(me, &all)).unwrap_or_default();
        known.strangers = below.iter().map(|stat| stat.process).collect();
        known.sessions = below.iter().map(|stat| stat.session).collect();
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
        Ok(Root { roots: self, process, child: Some(child), lifeline: None })
    }

    /// Ends what sandboxes have left whose roots are gone: it came to this process, if that is a subreaper. Whatever
    /// else it is, it is known by this: a child of this process in another session that is no root, no stranger and no
    /// stranger's.
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
                && !known.sessions.contains(&stat.session)
                && !known.strangers.contains(&stat.process)
                && !known.roots.contains(&stat.process)
                && (!me.is_init() || is_marked(stat.process))
        });
        found.iter().map(|stat| stat.process).collect()
    }
}

/// One root. Dropped, it ends with all that is below it and the sandbox's files, some time later; where it had no order
/// yet, its folder stays.
pub(crate) struct Root {
    roots: &'static Roots,
    process: Process,
    /// Until it is ended.
    child: Option<Child>,
    /// Where this is cut, the agent ends itself and all that is the sandbox's.
    lifeline: Option<ChildStdin>,
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

    /// Takes the one of them back that is to be open as long as the sandbox is to live.
    pub(crate) fn hold(&mut self, lifeline: ChildStdin) {
        self.lifeline = Some(lifeline);
    }

    /// Returns when no process of it is left. Blocks. The files stay.
    pub(crate) fn end(mut self) {
        if let Some(child) = self.child.take() {
            end(self.roots, self.process, child);
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let (roots, process) = (self.roots, self.process);
        if let Some(mut child) = self.child.take() {
            // Its files are nobody else's to remove.
            self.lifeline = None;
            // The same, where nobody has taken it: it waits for its order still.
            child.stdin = None;
            // Not one of the runtime's, which may be ending.
            let _ = thread::Builder::new().spawn(move || {
                freeze::let_end(process, GRACE);
                end(roots, process, child);
            });
        }
    }
}

fn end(roots: &Roots, process: Process, mut child: Child) {
    freeze::kill(process);
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

#[cfg(test)]
mod tests {
    use std::{io::Write as _, process::Stdio};

    use super::*;

    /// The end of a root is that of all orphans of this process, another test's, too.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Ended when dropped.
    struct Helper(Child);

    impl Helper {
        /// Has a session of its own when it is told to.
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "read go && exec setsid sleep 60"]);
            Self(command.stdin(Stdio::piped()).spawn().expect("a shell"))
        }

        fn stat(&self) -> proc_tree::Stat {
            let is_it = |stat: &proc_tree::Stat| u32::try_from(stat.process.pid).ok() == Some(self.0.id());
            proc_tree::scan().into_iter().find(is_it).expect("it runs")
        }

        fn leave_session(&mut self) -> Process {
            let before = self.stat().session;
            self.0.stdin.take().expect("its input").write_all(b"go\n").expect("it reads");
            while self.stat().session == before {
                thread::yield_now();
            }
            self.stat().process
        }
    }

    impl Drop for Helper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_was_there_before_the_sandboxes_is_no_orphan_whatever_its_session_becomes() {
        let _alone = ALONE.lock();
        let roots = Roots::new();
        let mut before = Helper::start();
        roots.remember_strangers();
        let before = (before.leave_session(), before);
        let mut later = Helper::start();
        let later = (later.leave_session(), later);
        let orphans = roots.orphans();
        assert!(!orphans.contains(&before.0) && orphans.contains(&later.0), "{orphans:?}");
        // While there are sandboxes it may be one of theirs.
        roots.known().roots.insert(before.0);
        roots.remember_strangers();
        assert!(roots.orphans().contains(&later.0));
        roots.known().roots.clear();
        roots.remember_strangers();
        assert!(!roots.orphans().contains(&later.0));
    }
    #[test]
    fn a_root_that_is_dropped_before_it_has_its_order_ends_at_once() {
        static OWN: Roots = Roots::new();
        let _alone = ALONE.lock();
        let mut command = Command::new("cat");
        drop(OWN.start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).expect("started"));
        let end = Instant::now() + Duration::from_secs(30);
        while !OWN.known().roots.is_empty() {
            assert!(Instant::now() < end, "it reads still");
            thread::yield_now();
        }
    }
}
