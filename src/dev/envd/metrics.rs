//! `GET /metrics`: what the sandbox's processes use, in the units and names of envd's API.

use std::{
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{Json, extract::State};
use rustix::{fs::statvfs, param::clock_ticks_per_second, process::getpid};
use serde::Serialize;
use tokio::{task::spawn_blocking, time::Instant};

use super::Envd;
use crate::dev::proc_tree::{Process, live_tree};

/// How it stood at the last call.
#[derive(Default)]
pub(super) struct Last(Mutex<Option<(Instant, Duration)>>);

#[derive(Serialize)]
pub(super) struct Metrics {
    /// Seconds since 1970.
    ts: u64,
    cpu_count: usize,
    /// Of one processor, since the last call.
    cpu_used_pct: f64,
    /// Bytes.
    mem_total: u64,
    mem_used: u64,
    disk_total: u64,
    disk_used: u64,
}

pub(super) async fn answer(State(envd): State<Arc<Envd>>) -> Json<Metrics> {
    let folder = envd.folder.clone();
    let read = spawn_blocking(move || (use_of_tree(), statvfs(&folder).ok(), memory_of_machine())).await;
    let ((cpu, mem_used), disk, mem_total) = read.unwrap_or_default();
    let now = Instant::now();
    let last = envd.metrics.0.lock().unwrap_or_else(PoisonError::into_inner).replace((now, cpu));
    let cpu_used_pct = last.map_or(0.0, |(at, before)| {
        let passed = now.saturating_duration_since(at).as_secs_f64();
        if passed > 0.0 { cpu.saturating_sub(before).as_secs_f64() / passed * 100.0 } else { 0.0 }
    });
    let ts = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    Json(Metrics {
        ts,
        cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
        cpu_used_pct: (cpu_used_pct * 100.0).round() / 100.0,
        mem_total,
        mem_used,
        disk_total: disk.as_ref().map_or(0, |disk| disk.f_blocks * disk.f_frsize),
        disk_used: disk.as_ref().map_or(0, |disk| (disk.f_blocks - disk.f_bfree) * disk.f_frsize),
    })
}

/// Processor time and memory of the agent and everything below it.
fn use_of_tree() -> (Duration, u64) {
    let Some(me) = Process::find(getpid().as_raw_nonzero().get()) else {
        return Default::default();
    };
    let page = rustix::param::page_size() as u64;
    let mut ticks = 0;
    let mut pages = 0;
    for stat in live_tree(me) {
        let read = |name| fs::read_to_string(format!("/proc/{}/{name}", stat.process.pid)).unwrap_or_default();
        let (text, memory) = (read("stat"), read("statm"));
        // `proc_pid_stat(5)`: fields 14 and 15, of which the name's parenthesis is the second.
        let fields = text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').skip(11).take(2));
        ticks += fields.into_iter().flatten().filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
        pages += memory.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    (Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1)), pages * page)
}

fn memory_of_machine() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
