//! Who belongs to a sandbox: the processes below its root, read from `/proc`.

use std::{collections::HashMap, fs};

/// One process, told apart from a later one with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks since boot.
    pub(crate) start: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        Stat::read(pid).map(|stat| stat.process)
    }

    /// Whether it is still there and not just waiting to be reaped.
    pub(crate) fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.process == self && stat.is_live())
    }
}

/// What `/proc/<pid>/stat` tells, as far as it matters here (`proc_pid_stat(5)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) process: Process,
    pub(crate) name: String,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    threads: u32,
    /// Of processors, in user and kernel mode, ever.
    pub(crate) ticks: u64,
    /// In memory now.
    pub(crate) pages: u64,
}

impl Stat {
    /// The name stands in parentheses and may hold spaces and parentheses itself, so the last one ends it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `fields[0]` is field 3 of the manual.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            process: Process { pid: pid.parse().ok()?, start: field(22)?.parse().ok()? },
            name: name.to_owned(),
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
            ticks: field(14)?.parse::<u64>().ok()?.saturating_add(field(15)?.parse().ok()?),
            pages: field(24)?.parse().ok()?,
        })
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A dead main thread shows as a zombie while other threads of the process go on.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    /// Whether every thread is stopped: the state of the process is that of its main thread alone.
    pub(crate) fn is_stopped(&self) -> bool {
        let stopped = |state: char| matches!(state, 'T' | 't' | 'Z' | 'X');
        if !stopped(self.state) {
            return false;
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.process.pid)) else {
            return true;
        };
        tasks.flatten().all(|task| {
            fs::read_to_string(task.path().join("stat"))
                .ok()
                .and_then(|text| Self::parse(&text))
                .is_none_or(|stat| stopped(stat.state))
        })
    }
}

/// Every process of the machine that this user can see.
pub(crate) fn scan() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Stat::read).collect()
}

/// The root, if it is still there, and everything below it, zombies too; parents before children.
pub(crate) fn below(root: Process, all: &[Stat]) -> Vec<Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let Some(first) = all.iter().find(|stat| stat.process == root) else {
        return Vec::new();
    };
    let mut found = vec![first.clone()];
    let mut next = 0;
    // `/proc` is read while processes come and go: a number met twice must not make a circle.
    while let Some(pid) = found.get(next).map(|stat| stat.process.pid) {
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child.clone());
        }
        next += 1;
    }
    found
}

/// The live processes of the tree, parents before children; empty when the root is gone.
pub(crate) fn live_tree(root: Process) -> Vec<Stat> {
    let mut tree = below(root, &scan());
    tree.retain(Stat::is_live);
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32, name: &str, state: char, parent: i32, start: u64) -> String {
        format!("{pid} ({name}) {state} {parent} 7 8 0 -1 4194560 1 0 0 0 11 22 0 0 20 0 1 0 {start} 100 3")
    }

    fn stat(pid: i32, state: char, parent: i32) -> Stat {
        Stat::parse(&line(pid, "x", state, parent, 5)).expect("a stat line")
    }

    #[test]
    fn names_may_hold_anything() {
        let stat = Stat::parse(&line(12, "a) R 1 (b", 'T', 3, 99)).expect("a stat line");
        assert_eq!(stat.process, Process { pid: 12, start: 99 });
        assert_eq!((stat.name.as_str(), stat.state), ("a) R 1 (b", 'T'));
        assert_eq!((stat.parent, stat.session, stat.ticks, stat.pages), (3, 8, 33, 3));
        assert_eq!(Stat::parse("12 (x"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn the_tree_is_the_root_and_all_below_it() {
        let all = [stat(1, 'S', 0), stat(20, 'S', 10), stat(10, 'S', 1), stat(30, 'Z', 20), stat(11, 'S', 1)];
        let root = Process { pid: 10, start: 5 };
        let pids = |tree: Vec<Stat>| -> Vec<i32> { tree.iter().map(|stat| stat.process.pid).collect() };
        assert_eq!(pids(below(root, &all)), [10, 20, 30]);
        let reused = Process { pid: 10, start: 6 };
        assert!(below(reused, &all).is_empty());
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let all = [stat(10, 'S', 20), stat(20, 'S', 10)];
        assert_eq!(below(Process { pid: 10, start: 5 }, &all).len(), 3);
    }

    #[test]
    fn this_process_is_alive_and_not_stopped() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        let me = Process::find(pid).expect("myself");
        assert!(me.is_alive());
        let tree = live_tree(me);
        assert_eq!(tree[0].process, me);
        assert!(!tree[0].is_stopped());
    }
}
