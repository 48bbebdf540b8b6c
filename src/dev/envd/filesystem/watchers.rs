//! Watches that are asked for their news from time to time (`CreateWatcher`, `GetWatcherEvents`,
//! `RemoveWatcher`). Nobody says when such a caller is gone: both numbers are bounded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::AbortHandle;

use super::watch::{Event, Watch};
use crate::dev::envd::{files::Fault, rpc::Code};

/// Each takes one of the user's inotify instances, of which there are 128 as a rule.
const MOST_WATCHERS: usize = 32;
/// Events that nobody has asked for yet.
const MOST_EVENTS: usize = 20_000;

#[derive(Default)]
pub(super) struct Watchers {
    all: Mutex<HashMap<String, Watcher>>,
}

struct Watcher {
    news: Arc<Mutex<News>>,
    task: AbortHandle,
}

#[derive(Default)]
struct News {
    events: Vec<Event>,
    fault: Option<Fault>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// No code panics while it holds one of the locks half-way through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Whether there may be another, before the work for it.
    pub(super) fn check_room(&self) -> Result<(), Fault> {
        if lock(&self.all).len() < MOST_WATCHERS {
            return Ok(());
        }
        let why = format!("{MOST_WATCHERS} watchers are there already: remove those that are not needed");
        Err(Fault::new(Code::ResourceExhausted, why))
    }

    /// The new one's id.
    pub(super) fn add(&self, mut watch: Watch) -> Result<String, Fault> {
        self.check_room()?;
        let news = Arc::new(Mutex::new(News::default()));
        let kept = news.clone();
        let task = tokio::spawn(async move {
            loop {
                let outcome = watch.next().await;
                let mut kept = lock(&kept);
                match outcome {
                    Ok(events) if kept.events.len() + events.len() <= MOST_EVENTS => kept.events.extend(events),
                    Ok(_) => {
                        kept.events = Vec::new();
                        let why = "more changes than could be kept; make another watcher";
                        kept.fault = Some(Fault::new(Code::ResourceExhausted, why));
                        return;
                    }
                    Err(fault) => {
                        kept.fault = Some(fault);
                        return;
                    }
                }
            }
        });
        let id = format!("w{:016x}", fastrand::u64(..));
        lock(&self.all).insert(id.clone(), Watcher { news, task: task.abort_handle() });
        Ok(id)
    }

    /// What happened since the last call.
    pub(super) fn events(&self, id: &str) -> Result<Vec<Event>, Fault> {
        let news = lock(&self.all).get(id).map(|watcher| watcher.news.clone()).ok_or_else(|| unknown(id))?;
        let mut news = lock(&news);
        match &news.fault {
            Some(fault) if news.events.is_empty() => Err(fault.clone()),
            _ => Ok(std::mem::take(&mut news.events)),
        }
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), Fault> {
        lock(&self.all).remove(id).map(drop).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> Fault {
    Fault::new(Code::NotFound, format!("watcher with id {id} not found"))
}
