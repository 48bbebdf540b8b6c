//! What processes use of this machine, and what it has, read from `/proc`. Blocks.

use std::{fs, path::Path, time::Duration};

use rustix::{
    fs::statvfs,
    param::{clock_ticks_per_second, page_size},
};

use super::proc_tree::{Process, live_tree};

/// Of a whole tree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Time of processors ever, of the processes that still live.
    pub(crate) processors: Duration,
    /// Bytes.
    pub(crate) memory: u64,
}

impl Usage {
    /// Of the root and everything below it.
    pub(crate) fn of_tree(root: Process) -> Self {
        let tree = live_tree(root);
        let ticks = tree.iter().fold(0, |sum: u64, stat| sum.saturating_add(stat.ticks));
        let pages = tree.iter().fold(0, |sum: u64, stat| sum.saturating_add(stat.pages));
        Self {
            processors: Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1)),
            memory: pages.saturating_mul(page_size() as u64),
        }
    }

    /// What was used since then, in per cent of all processors (`cpuUsedPct` and envd's `cpu_used_pct`).
    pub(crate) fn percent_since(&self, before: &Self, passed: Duration) -> f64 {
        let all = passed.as_secs_f64() * f64::from(u32::try_from(processors()).unwrap_or(u32::MAX));
        // Of processes that ended meanwhile nothing is known any more.
        let used = self.processors.saturating_sub(before.processors).as_secs_f64();
        if all > 0.0 { (used / all * 10_000.0).round() / 100.0 } else { 0.0 }
    }
}

/// How many there are.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// All that the machine has, bytes.
pub(crate) fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default().saturating_mul(1024)
}

/// Of a file system, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) used: u64,
    pub(crate) total: u64,
}

impl Disk {
    pub(crate) fn under(folder: &Path) -> Self {
        let Ok(disk) = statvfs(folder) else { return Self::default() };
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Self { used: bytes(disk.f_blocks.saturating_sub(disk.f_bfree)), total: bytes(disk.f_blocks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cents_are_of_all_processors() {
        let used = |seconds| Usage { processors: Duration::from_secs(seconds), memory: 0 };
        let all = u64::try_from(processors()).expect("a number");
        let second = Duration::from_secs(1);
        assert!((used(5 + all).percent_since(&used(5), second) - 100.0).abs() < 0.01);
        assert!(used(1).percent_since(&used(5), second).abs() < 0.01);
        assert!(used(5).percent_since(&used(1), Duration::ZERO).abs() < 0.01);
    }
}
