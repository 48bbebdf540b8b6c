//! What sandboxes use of this machine, measured when asked for: nothing is recorded.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Json, extract::State, response::IntoResponse as _};
use futures_util::future::join_all;
use rustix::{
    fs::statvfs,
    param::{clock_ticks_per_second, page_size},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    api::{Answer, Api},
    api_error::ApiError,
    heads::{Asked, Id},
    proc_tree::{Process, live_tree},
    sandbox::Sandbox,
};

/// Over which the use of processors is measured.
const WHILE: Duration = Duration::from_millis(200);
/// Sandboxes of one call, as E2B's API has it.
const MOST: usize = 100;

/// From when until when, seconds since 1970.
#[derive(Deserialize)]
pub(super) struct Span {
    start: Option<i64>,
    end: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct Several {
    sandbox_ids: Option<String>,
}

/// A list of one, if the sandbox runs and the time asked for is now.
pub(super) async fn of_one(State(api): State<Arc<Api>>, Id(id): Id, Asked(span): Asked<Span>) -> Answer {
    let measured = measure(api.find(&id)?).await;
    let within = |at: i64| span.start.is_none_or(|start| start <= at) && span.end.is_none_or(|end| at <= end);
    let list: Vec<_> = measured.into_iter().filter(|one| one["timestampUnix"].as_i64().is_some_and(within)).collect();
    Ok(Json(list).into_response())
}

/// By id; those that do not run are left out.
pub(super) async fn of_several(State(api): State<Arc<Api>>, Asked(several): Asked<Several>) -> Answer {
    let ids = several.sandbox_ids.unwrap_or_default();
    let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.is_empty() || ids.len() > MOST {
        return Err(ApiError::bad_request("sandbox_ids must name 1 to 100 sandboxes"));
    }
    let known = ids.into_iter().filter_map(|id| api.find(id).ok());
    let measured = join_all(known.map(async |sandbox| (sandbox.facts.id.to_string(), measure(sandbox).await))).await;
    let all: BTreeMap<_, _> = measured.into_iter().filter_map(|(id, one)| Some((id, one?))).collect();
    Ok(Json(json!({ "sandboxes": all })).into_response())
}

/// `SandboxMetric`; `None` where nothing runs.
async fn measure(sandbox: Arc<Sandbox>) -> Option<Value> {
    let root = sandbox.snapshot().is_running().then(|| sandbox.root())??;
    let (begun, before) = (Instant::now(), used(root).await?.ticks);
    tokio::time::sleep(WHILE).await;
    let used = used(root).await?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Of processes that ended meanwhile nothing is known any more.
    let ticks = used.ticks.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "a percentage of few ticks")]
    let percent =
        100.0 * ticks as f64 / clock_ticks_per_second() as f64 / begun.elapsed().as_secs_f64() / processors as f64;
    let now = SystemTime::now();
    let disk = disk(&sandbox.facts.folder);
    Some(json!({
        "timestamp": humantime::format_rfc3339_millis(now).to_string(),
        "timestampUnix": now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        "cpuCount": processors,
        "cpuUsedPct": percent,
        "memUsed": used.memory,
        "memTotal": memory(),
        "memCache": 0,
        "diskUsed": disk.0,
        "diskTotal": disk.1,
    }))
}

/// Ticks of processors ever, bytes of memory now.
#[derive(Default)]
struct Used {
    ticks: u64,
    memory: u64,
}

async fn used(root: Process) -> Option<Used> {
    let of_tree = move || {
        live_tree(root).iter().fold(Used::default(), |sum, stat| {
            let one = fs::read_to_string(format!("/proc/{}/stat", stat.process.pid)).ok();
            let one = one.and_then(|text| Used::parse(&text)).unwrap_or_default();
            Used { ticks: sum.ticks + one.ticks, memory: sum.memory + one.memory }
        })
    };
    spawn_blocking(of_tree).await.ok()
}

impl Used {
    /// Of `/proc/<pid>/stat` (`proc_pid_stat(5)`), counted from the state, its third field.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let pages = field(24)?;
        Some(Self { ticks: field(14)? + field(15)?, memory: pages.saturating_mul(page_size() as u64) })
    }
}

/// All that the machine has, bytes.
fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// Used and there, bytes of the file system.
fn disk(folder: &Path) -> (u64, u64) {
    let Ok(disk) = statvfs(folder) else { return (0, 0) };
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    (bytes(disk.f_blocks.saturating_sub(disk.f_bfree)), bytes(disk.f_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_pages_are_found_behind_any_name() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 11 22 0 0 20 0 1 0 99 1000 3 0";
        let used = Used::parse(text).expect("a line");
        assert_eq!((used.ticks, used.memory), (33, 3 * page_size() as u64));
        assert!(Used::parse("7 (a) S 1").is_none());
    }
}
