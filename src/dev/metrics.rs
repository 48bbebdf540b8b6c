//! What sandboxes use of this machine, measured when asked for: nothing is recorded.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Json, extract::State, response::IntoResponse as _};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    api::{Answer, Api},
    api_error::ApiError,
    clock,
    heads::{Asked, Id},
    proc_tree::Process,
    sandbox::Sandbox,
    usage::{self, Disk, Usage},
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
    let measured = measure(api.find(&id).await?).await;
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
    let measured = join_all(ids.into_iter().map(async |id| Some((id, measure(api.find(id).await.ok()?).await?)))).await;
    let all: BTreeMap<_, _> = measured.into_iter().flatten().collect();
    Ok(Json(json!({ "sandboxes": all })).into_response())
}

/// `SandboxMetric`; `None` where nothing runs.
async fn measure(sandbox: Arc<Sandbox>) -> Option<Value> {
    let root = sandbox.snapshot().is_running().then(|| sandbox.root())??;
    let (begun, before) = (Instant::now(), used(root).await?);
    tokio::time::sleep(WHILE).await;
    let used = used(root).await?;
    let now = SystemTime::now();
    let disk = Disk::under(&sandbox.facts.folder);
    Some(json!({
        "timestamp": humantime::format_rfc3339_millis(now).to_string(),
        "timestampUnix": clock::now().as_secs(),
        "cpuCount": usage::processors(),
        "cpuUsedPct": used.percent_since(&before, begun.elapsed()),
        "memUsed": used.memory,
        "memTotal": usage::memory(),
        "memCache": 0,
        "diskUsed": disk.used,
        "diskTotal": disk.total,
    }))
}

async fn used(root: Process) -> Option<Usage> {
    spawn_blocking(move || Usage::of_tree(root)).await.ok()
}
