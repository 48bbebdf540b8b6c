//! `GET /metrics`: what the sandbox's processes use, in the units and names of envd's API.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{Json, extract::State};
use rustix::process::getpid;
use serde::Serialize;
use tokio::{task::spawn_blocking, time::Instant};

use super::Envd;
use crate::dev::{
    clock,
    proc_tree::Process,
    usage::{self, Disk, Usage},
};

/// How it stood at the last call.
#[derive(Default)]
pub(super) struct Last(Mutex<Option<(Instant, Usage)>>);

#[derive(Serialize)]
pub(super) struct Metrics {
    /// Seconds since 1970.
    ts: u64,
    cpu_count: usize,
    /// Of all processors, since the last call.
    cpu_used_pct: f64,
    /// Bytes.
    mem_total: u64,
    mem_used: u64,
    disk_total: u64,
    disk_used: u64,
}

pub(super) async fn answer(State(envd): State<Arc<Envd>>) -> Json<Metrics> {
    let folder = envd.folder.clone();
    let read = spawn_blocking(move || (use_of_tree(), Disk::under(&folder), usage::memory())).await;
    let (used, disk, mem_total) = read.unwrap_or_default();
    let now = Instant::now();
    let last = envd.metrics.0.lock().unwrap_or_else(PoisonError::into_inner).replace((now, used));
    Json(Metrics {
        ts: clock::now().as_secs(),
        cpu_count: usage::processors(),
        cpu_used_pct: last.map_or(0.0, |(at, before)| used.percent_since(&before, now.saturating_duration_since(at))),
        mem_total,
        mem_used: used.memory,
        disk_total: disk.total,
        disk_used: disk.used,
    })
}

/// Of the agent and everything below it.
fn use_of_tree() -> Usage {
    Process::find(getpid().as_raw_nonzero().get()).map(Usage::of_tree).unwrap_or_default()
}
