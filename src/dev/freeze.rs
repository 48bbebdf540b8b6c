//! Stopping, continuing and ending whole process trees. Everything here blocks.

use std::{collections::HashSet, io, thread, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid};
use tokio::time::Instant;

use super::proc_tree::{self, Process, Stat};

/// The variable by which a process tells whose it is: to people, and to a playground that is the first process of a
/// container, which ends by it what sandboxes leave.
pub(crate) const MARK: &str = "CLIENT_PROXY_SANDBOX";

const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(1);
/// A process that is being created may be missed by the reading of `/proc` that created it: only
/// several equal readings in a row count.
const EQUAL_ROUNDS: u32 = 2;
/// Rounds in which nothing but uninterruptible processes are awake, before one is helped.
const STUCK_ROUNDS: u32 = 20;

/// A stopped tree, and what in it was stopped by its own people before: that stays so.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    stopped_before: HashSet<Process>,
}

/// Stops every process of the tree and returns when all threads of all of them are stopped and nothing
/// new appears. On an error the tree goes on as before.
pub(crate) fn freeze(root: Process) -> io::Result<Frozen> {
    let before = proc_tree::live_tree(root);
    let frozen = Frozen {
        stopped_before: before.iter().filter(|stat| matches!(stat.state, 'T' | 't')).map(|stat| stat.process).collect(),
    };
    if let Err(error) = stop(root, true, PATIENCE) {
        thaw(root, &frozen);
        return Err(error);
    }
    Ok(frozen)
}

/// Continues every process of the tree.
pub(crate) fn thaw(root: Process, frozen: &Frozen) {
    for stat in proc_tree::live_tree(root) {
        if !frozen.stopped_before.contains(&stat.process) {
            signal(stat.process, Signal::CONT);
        }
    }
}

/// Ends the tree, stopped or not, and returns when no process of it is left.
pub(crate) fn kill(root: Process) {
    end(root, true);
}

/// Ends everything below this very process.
pub(crate) fn kill_below_me() {
    if let Some(me) = Process::find(getpid().as_raw_nonzero().get()) {
        end(me, false);
    }
}

/// Stopped processes create no others, so stopping first makes the list final.
fn end(root: Process, with_root: bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // An error means that something could not be stopped in time: it is killed all the same.
        let _ = stop(root, with_root, Duration::from_secs(2));
        let mut members = members(root, with_root);
        // Children first: as long as the root lives, orphans stay below it.
        members.reverse();
        for stat in &members {
            signal(stat.process, Signal::KILL);
        }
        while members.iter().any(|stat| stat.process.is_alive()) && Instant::now() < deadline {
            pause(ROUND);
        }
        for stat in &members {
            if stat.process != root {
                reap(stat.process);
            }
        }
        if members.is_empty() || Instant::now() >= deadline {
            return;
        }
    }
}

/// Gives a process so long to end by itself, stopped or not.
pub(crate) fn let_end(process: Process, patience: Duration) {
    let deadline = Instant::now() + patience;
    while process.is_alive() && Instant::now() < deadline {
        // Again and again: a freeze may be under way.
        signal(process, Signal::CONT);
        pause(100 * ROUND);
    }
}

/// Collects the exit of a process if it is a child of this one; the root's is its owner's to collect.
pub(crate) fn reap(process: Process) {
    if let Some(pid) = Pid::from_raw(process.pid) {
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

fn members(root: Process, with_root: bool) -> Vec<Stat> {
    let mut members = proc_tree::live_tree(root);
    if !with_root {
        members.retain(|stat| stat.process != root);
    }
    members
}

fn stop(root: Process, with_root: bool, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let mut last: Vec<Process> = Vec::new();
    let mut equal = 0;
    let mut stuck = 0;
    loop {
        let members = members(root, with_root);
        if members.is_empty() && with_root {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the sandbox's root process is gone"));
        }
        let awake: Vec<&Stat> = members.iter().filter(|stat| !stat.is_stopped()).collect();
        let now: Vec<Process> = members.iter().map(|stat| stat.process).collect();
        equal = if awake.is_empty() && now == last { equal + 1 } else { 0 };
        if equal == EQUAL_ROUNDS {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names: Vec<&str> = awake.iter().map(|stat| stat.name.as_str()).collect();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("these processes do not stop: {}", names.join(", ")),
            ));
        }
        for stat in &awake {
            signal(stat.process, Signal::STOP);
        }
        let blocked = !awake.is_empty() && awake.iter().all(|stat| stat.state == 'D');
        stuck = if blocked { stuck + 1 } else { 0 };
        if stuck >= STUCK_ROUNDS {
            release_vfork(&awake, &members);
            stuck = 0;
        }
        last = now;
        if !awake.is_empty() {
            pause(ROUND);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "on a thread for blocking work; `/proc` tells of no events")]
fn pause(duration: Duration) {
    thread::sleep(duration);
}

/// A parent in vfork(2) sleeps uninterruptibly until its child has called execve(2). If that child was
/// stopped before, neither ever gets on: let the child run a little.
fn release_vfork(blocked: &[&Stat], members: &[Stat]) {
    for stat in members {
        if blocked.iter().any(|parent| parent.process.pid == stat.parent) {
            signal(stat.process, Signal::CONT);
        }
    }
    pause(2 * ROUND);
}

/// Holds the process by a descriptor before comparing the start time, so that the signal cannot reach a
/// stranger who got the number meanwhile. A process that is gone needs no signal.
fn signal(process: Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return;
    };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if Process::find(process.pid) == Some(process) {
        let _ = pidfd_send_signal(descriptor, signal);
    }
}
