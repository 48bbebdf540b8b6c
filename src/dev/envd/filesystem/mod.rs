//! envd's service `filesystem.Filesystem`: looking at files, changing directories, watching them.

mod entry;
mod owners;
mod tree;
mod watch;
mod watchers;

use std::sync::Arc;

use axum::Router;
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::{
    entry::EntryInfo,
    watch::{Event, Watch},
    watchers::Watchers,
};
use super::{
    files::{Fault, Place, Root, in_background},
    rpc::{self, Call, Code, Error},
};

/// Each takes one of the user's inotify instances, of which there are 128 as a rule.
const MOST_WATCHES: usize = 32;

struct Service {
    root: Arc<Root>,
    watchers: Watchers,
    /// Of watches, whether they are streams or wait to be asked.
    seats: Arc<Semaphore>,
}

type State = Arc<Service>;

/// The service's calls. They ask for no token: that is for whoever puts them up.
pub(crate) fn router<S: rpc::Service>(root: Arc<Root>) -> Router<S> {
    let call = |name: &str| format!("/filesystem.Filesystem/{name}");
    Router::new()
        .route(&call("Stat"), rpc::unary(rpc::SHORT, stat))
        .route(&call("ListDir"), rpc::unary(rpc::SHORT, list))
        .route(&call("MakeDir"), rpc::unary(rpc::SHORT, make))
        .route(&call("Move"), rpc::unary(rpc::SHORT, rename))
        .route(&call("Remove"), rpc::unary(rpc::SHORT, remove))
        .route(&call("WatchDir"), rpc::server_stream(rpc::SHORT, watch))
        .route(&call("CreateWatcher"), rpc::unary(rpc::SHORT, create_watcher))
        .route(&call("GetWatcherEvents"), rpc::unary(rpc::SHORT, watcher_events))
        .route(&call("RemoveWatcher"), rpc::unary(rpc::SHORT, remove_watcher))
        .with_state(Arc::new(Service {
            root,
            watchers: Watchers::default(),
            seats: Arc::new(Semaphore::new(MOST_WATCHES)),
        }))
}

/// `google.protobuf.Empty` and its likes.
#[derive(Serialize)]
struct Nothing {}

/// What is left out has its default (protobuf.dev/programming-guides/json).
#[derive(Default, Deserialize)]
#[serde(default)]
struct At {
    path: String,
}

#[derive(Serialize)]
struct One {
    entry: EntryInfo,
}

impl Service {
    fn place(&self, call: &Call, path: &str) -> Result<Place, Error> {
        Ok(self.root.place(path, call.user.as_deref())?)
    }

    async fn one(&self, work: impl FnOnce(&Root) -> Result<EntryInfo, Fault> + Send + 'static) -> Result<One, Error> {
        let root = self.root.clone();
        Ok(One { entry: in_background(move || work(&root)).await? })
    }
}

async fn stat(service: State, call: Call, at: At) -> Result<One, Error> {
    let place = service.place(&call, &at.path)?;
    service.one(move |root| tree::stat(root, &place)).await
}

async fn make(service: State, call: Call, at: At) -> Result<One, Error> {
    let place = service.place(&call, &at.path)?;
    service.one(move |root| tree::make(root, &place)).await
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Moving {
    source: String,
    destination: String,
}

async fn rename(service: State, call: Call, moving: Moving) -> Result<One, Error> {
    let (from, to) = (service.place(&call, &moving.source)?, service.place(&call, &moving.destination)?);
    service.one(move |root| tree::rename(root, &from, &to)).await
}

async fn remove(service: State, call: Call, at: At) -> Result<Nothing, Error> {
    let (root, place) = (service.root.clone(), service.place(&call, &at.path)?);
    in_background(move || root.remove(&place)).await?;
    Ok(Nothing {})
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Listing {
    path: String,
    /// Nought is one.
    depth: u32,
}

#[derive(Serialize)]
struct Entries {
    entries: Vec<EntryInfo>,
}

async fn list(service: State, call: Call, listing: Listing) -> Result<Entries, Error> {
    let (root, place) = (service.root.clone(), service.place(&call, &listing.path)?);
    Ok(Entries { entries: in_background(move || tree::list(&root, &place, listing.depth)).await? })
}

/// `allowNetworkMounts` is for those who have such mounts.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Watching {
    path: String,
    recursive: bool,
    include_entry: bool,
}

impl Watching {
    /// A watch, and its seat, to be kept as long.
    async fn begin(self, service: &Service, call: &Call) -> Result<(Watch, OwnedSemaphorePermit), Error> {
        let seat = service.seats.clone().try_acquire_owned().map_err(|_| {
            let why = format!("{MOST_WATCHES} watches are there already: end those that are not needed");
            Error::new(Code::ResourceExhausted, why)
        })?;
        let (root, place) = (service.root.clone(), service.place(call, &self.path)?);
        Ok((in_background(move || Watch::new(root, place, self.recursive, self.include_entry)).await?, seat))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum News {
    Start(Nothing),
    Filesystem(Box<Event>),
    Keepalive(Nothing),
}

async fn watch(
    service: State,
    call: Call,
    watching: Watching,
) -> Result<impl Stream<Item = Result<News, Error>>, Error> {
    let watch = watching.begin(&service, &call).await?;
    let start = stream::iter([Ok(News::Start(Nothing {}))]);
    let batches = stream::unfold(Some(watch), async |watch| {
        let (watch, seat) = watch?;
        Some(match watch.next().await {
            Ok((events, watch)) => {
                let news = events.into_iter().map(|event| Ok(News::Filesystem(Box::new(event))));
                (news.collect(), Some((watch, seat)))
            }
            Err(fault) => (vec![Err(fault.into())], None),
        })
    });
    let changes = batches.flat_map(|batch: Vec<Result<News, Error>>| stream::iter(batch));
    Ok(rpc::keep_alive(start.chain(changes), call.keepalive, || Ok(News::Keepalive(Nothing {}))))
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Id {
    watcher_id: String,
}

async fn create_watcher(service: State, call: Call, watching: Watching) -> Result<Id, Error> {
    let (watch, seat) = watching.begin(&service, &call).await?;
    Ok(Id { watcher_id: service.watchers.add(watch, seat) })
}

#[derive(Serialize)]
struct Events {
    events: Vec<Event>,
}

async fn watcher_events(service: State, _: Call, id: Id) -> Result<Events, Error> {
    Ok(Events { events: service.watchers.events(&id.watcher_id)? })
}

async fn remove_watcher(service: State, _: Call, id: Id) -> Result<Nothing, Error> {
    service.watchers.remove(&id.watcher_id)?;
    Ok(Nothing {})
}
