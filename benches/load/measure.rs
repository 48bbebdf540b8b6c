//! What a process and its children took: CPU time and memory. And medians.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use serde::Serialize;

/// What one round found, or the medians over all of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Sample {
    /// In the scenario's unit; less is better.
    pub(crate) figure: f64,
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// From the end of the wake call to the first and to the last byte answered, over all requests held.
    pub(crate) first_byte_ms: Option<f64>,
    pub(crate) last_byte_ms: Option<f64>,
    /// The memory of all its processes at the end of the load, or at its height where memory is measured.
    pub(crate) rss_mib: f64,
    /// Requests that were not answered well.
    pub(crate) errors: u64,
}

impl Sample {
    /// The median of each figure, and all errors. `None` without samples.
    pub(crate) fn median(samples: &[Self]) -> Option<Self> {
        let all = |field: fn(&Self) -> Option<f64>| median(samples.iter().filter_map(field).collect());
        Some(Self {
            figure: all(|sample| Some(sample.figure))?,
            requests_per_second: all(|sample| sample.requests_per_second),
            p50_ms: all(|sample| sample.p50_ms),
            p99_ms: all(|sample| sample.p99_ms),
            first_byte_ms: all(|sample| sample.first_byte_ms),
            last_byte_ms: all(|sample| sample.last_byte_ms),
            rss_mib: all(|sample| Some(sample.rss_mib))?,
            errors: samples.iter().map(|sample| sample.errors).sum(),
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2)?;
    let below = values[(values.len() - 1) / 2];
    Some(f64::midpoint(below, *middle))
}

/// A process and all below it, parents first.
pub(crate) fn tree(pid: u32) -> io::Result<Vec<u32>> {
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(pid) = tree.get(at) {
        for task in tasks(*pid)? {
            let children = fs::read_to_string(task.join("children"))?;
            tree.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        at += 1;
    }
    Ok(tree)
}

/// The time that the threads of these processes have been on a core.
pub(crate) fn cpu(processes: &[u32]) -> anyhow::Result<Duration> {
    let mut nanoseconds = 0;
    for pid in processes {
        for task in tasks(*pid)? {
            let schedstat = fs::read_to_string(task.join("schedstat"))?;
            let on_core = schedstat.split(' ').next().and_then(|field| field.parse::<u64>().ok());
            nanoseconds += on_core.context("schedstat begins with nanoseconds on a core")?;
        }
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The memory of these processes that is resident, in KiB.
pub(crate) fn rss(processes: &[u32]) -> anyhow::Result<u64> {
    let one = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.context("VmRSS in kB")
    };
    processes.iter().map(one).sum()
}

fn tasks(pid: u32) -> io::Result<Vec<PathBuf>> {
    let folder = Path::new("/proc").join(pid.to_string()).join("task");
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts of requests and KiB are far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
