//! Watches that are asked for their news from time to time (`CreateWatcher`, `GetWatcherEvents`,
//! `RemoveWatcher`). Nobody says when such a caller is gone: what is kept for it is bounded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::OwnedSemaphorePermit, task::AbortHandle};

use super::watch::{Event, Watch};
use crate::dev::envd::{files::Fault, rpc::Code};

/// Events that nobody has asked for yet, in number and in what they take in memory, in bytes.
const MOST_EVENTS: usize = 20_000;
const LARGEST: usize = 8 << 20;

#[derive(Default)]
pub(super) struct Watchers {
    all: Mutex<HashMap<String, Watcher>>,
}

struct Watcher {
    news: Arc<Mutex<News>>,
    task: AbortHandle,
    /// Also when the watch has ended: somebody may still ask.
    _seat: OwnedSemaphorePermit,
}

#[derive(Default)]
struct News {
    events: Vec<Event>,
    size: usize,
    fault: Option<Fault>,
}

impl News {
    /// Says whether there was room.
    fn take(&mut self, events: Vec<Event>) -> bool {
        self.size += events.iter().map(Event::size_in_memory).sum::<usize>();
        self.events.extend(events);
        self.events.len() <= MOST_EVENTS && self.size <= LARGEST
    }
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
    /// The new one's id.
    pub(super) fn add(&self, mut watch: Watch, seat: OwnedSemaphorePermit) -> String {
        let news = Arc::new(Mutex::new(News::default()));
        let kept = news.clone();
        let task = tokio::spawn(async move {
            loop {
                let outcome = watch.next().await;
                let mut kept = lock(&kept);
                let fault = match outcome {
                    Ok((events, same)) => {
                        watch = same;
                        if kept.take(events) {
                            continue;
                        }
                        *kept = News::default();
                        Fault::new(Code::ResourceExhausted, "more changes than could be kept; make another watcher")
                    }
                    Err(fault) => fault,
                };
                kept.fault = Some(fault);
                return;
            }
        });
        let id = format!("w{:016x}", fastrand::u64(..));
        lock(&self.all).insert(id.clone(), Watcher { news, task: task.abort_handle(), _seat: seat });
        id
    }

    /// What happened since the last call.
    pub(super) fn events(&self, id: &str) -> Result<Vec<Event>, Fault> {
        let news = lock(&self.all).get(id).map(|watcher| watcher.news.clone()).ok_or_else(|| unknown(id))?;
        let mut news = lock(&news);
        match &news.fault {
            Some(fault) if news.events.is_empty() => Err(fault.clone()),
            _ => {
                news.size = 0;
                Ok(std::mem::take(&mut news.events))
            }
        }
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), Fault> {
        lock(&self.all).remove(id).map(drop).ok_or_else(|| unknown(id))
    }
}

fn unknown(id: &str) -> Fault {
    Fault::new(Code::NotFound, format!("watcher with id {id} not found"))
}
