//! One connection to one server, kept up for ever: it carries lookups, and tells what changes.
//!
//! Changes come by server-assisted client-side caching in its broadcasting mode: the server pushes the name of every
//! key with the catalog's prefix that is written, deleted, expired or flushed. A peer that is frozen, or gone without
//! a word, pushes nothing: so it is pinged, and vouched for only up to a moment after the last ping that it answered
//! was *sent*.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redis::{ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    record::{self, PREFIX},
    server::{Address, Servers},
};
use crate::sandbox::ports::{Listener, Watcher};

/// Often enough for what a ping vouched for to be renewed by the next one.
const PING_EVERY: Duration = Duration::from_millis(400);
/// The least that a ping may take, however short lookups must be.
const PING_LIMIT: Duration = Duration::from_millis(500);
/// The longest that a change may stay unknown.
const LEASE: Duration = Duration::from_secs(1);

/// So often a server that refused to push is asked whether it does by now.
const TRACK_AGAIN: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lived shorter was none: the pauses go on growing.
const SETTLED: Duration = Duration::from_secs(5);

/// What there is of a connection now.
#[derive(Clone)]
enum Line {
    /// There is none yet, or the last has just broken: one is being opened.
    Opening,
    Up(MultiplexedConnection),
    /// It could not be opened the last time; it is tried again.
    Down(Arc<str>),
}

/// A connection that is kept up until this is dropped.
pub(super) struct Link {
    line: watch::Receiver<Line>,
    keeper: AbortHandle,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Link {
    pub(super) fn start(servers: Servers, address: Address, listener: Arc<dyn Listener>, control: &Handle) -> Self {
        let (tell, line) = watch::channel(Line::Opening);
        // At once, not when the task first runs: from now on changes of this server count.
        let watcher = servers.push.then(|| Arc::new(listener.lease().watcher()));
        let keeper = Keeper { servers, address, listener, watcher, line: tell, refused: false };
        Self { line, keeper: control.spawn(keeper.keep()).abort_handle() }
    }

    /// The connection, as soon as there is one; or why there is none.
    pub(super) async fn connection(&self) -> Result<MultiplexedConnection, String> {
        let mut line = self.line.clone();
        let settled = line.wait_for(|line| !matches!(line, Line::Opening)).await;
        match settled.as_deref() {
            Ok(Line::Up(connection)) => Ok(connection.clone()),
            Ok(Line::Down(why)) => Err(why.to_string()),
            _ => Err("the connection is being given up".into()),
        }
    }
}

struct Keeper {
    servers: Servers,
    address: Address,
    listener: Arc<dyn Listener>,
    /// None where no pushes are wanted.
    watcher: Option<Arc<Watcher>>,
    line: watch::Sender<Line>,
    /// The server was said to refuse pushes: that is told once.
    refused: bool,
}

/// One connection's life, as the task that reads it knows it.
struct Session {
    listener: Arc<dyn Listener>,
    watcher: Option<Arc<Watcher>>,
    over: AtomicBool,
    closed: Notify,
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let session = Arc::new(Session::new(self.listener.clone(), self.watcher.clone()));
            let server = &self.address;
            let began = Instant::now();
            let opened = {
                let session = session.clone();
                self.servers.connect(server, move |info| session.pushed(info)).await
            };
            match opened {
                Ok((connection, pushes)) => {
                    // One that does not push comes after one that should have, whose end is not its own.
                    let plain = Session::new(self.listener.clone(), None);
                    let why = self.attend(if pushes { &session } else { &plain }, connection, pushes).await;
                    session.end();
                    // Also what was vouched for in the moment in which it ended.
                    if let Some(watcher) = &self.watcher {
                        watcher.lost();
                    }
                    self.line.send_replace(Line::Opening);
                    tracing::warn!(server = %self.address, why, "the connection to Redis is lost");
                }
                Err(error) => {
                    let why = error.to_string();
                    let told = matches!(&*self.line.borrow(), Line::Down(before) if **before == *why);
                    if !told {
                        tracing::warn!(%server, %error, "no connection to Redis");
                    }
                    self.line.send_replace(Line::Down(why.into()));
                }
            }
            if began.elapsed() >= SETTLED {
                pause = FIRST_PAUSE;
            }
            // Jittered, so that proxies that lost the same server do not come back in step.
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Looks after a connection to its end; returns why it ended.
    async fn attend(&mut self, session: &Session, connection: MultiplexedConnection, pushes: bool) -> String {
        // One that is slow still answers lookups; what it vouches for ends by itself.
        let limit = self.servers.timeout.max(PING_LIMIT);
        let mut watched = self.watcher.is_some() && pushes;
        if watched {
            let sent = Instant::now();
            match answer(limit, track(connection.clone())).await {
                Err(why) => return why,
                Ok(Ok(())) => match answer(limit, ping(connection.clone())).await {
                    Err(why) => return why,
                    Ok(Ok(())) => session.vouch(sent + LEASE),
                    // The loop below tells.
                    Ok(Err(_)) => {}
                },
                Ok(Err(error)) => {
                    self.refuse(&error.to_string());
                    watched = false;
                }
            }
            self.refused &= !watched;
        } else if self.watcher.is_some() {
            self.refuse("it does not speak RESP3");
        }
        tracing::info!(server = %self.address, push = watched, "connected to Redis");
        self.line.send_replace(Line::Up(connection.clone()));
        let mut track_again = Instant::now() + TRACK_AGAIN;
        let mut told = None;
        loop {
            tokio::select! {
                () = session.closed.notified() => return "it was closed".into(),
                () = sleep(PING_EVERY) => {}
            }
            let sent = Instant::now();
            match answer(limit, ping(connection.clone())).await {
                Err(why) => return why,
                Ok(Ok(())) if watched => session.vouch(sent + LEASE),
                Ok(Ok(())) => {}
                // It has no data, or not those of now: that it pushes nothing means nothing.
                Ok(Err(error)) => {
                    if let Some(watcher) = &self.watcher {
                        watcher.lost();
                    }
                    if told.replace(error.to_string()).as_deref() != Some(&error.to_string()) {
                        tracing::warn!(server = %self.address, %error, "Redis answers, and is no use");
                    }
                    sleep(LONGEST_PAUSE).await;
                }
            }
            if !watched && pushes && session.watcher.is_some() && sent >= track_again {
                track_again = sent + TRACK_AGAIN;
                match answer(limit, track(connection.clone())).await {
                    Err(why) => return why,
                    Ok(Ok(())) => (watched, self.refused) = (true, false),
                    Ok(Err(_)) => {}
                }
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!(
                server = %self.address,
                why,
                "Redis pushes no changes: what is known is used for cache.ttl and asked for again"
            );
        }
    }
}

impl Session {
    fn new(listener: Arc<dyn Listener>, watcher: Option<Arc<Watcher>>) -> Self {
        Self { listener, watcher, over: AtomicBool::new(false), closed: Notify::new() }
    }

    /// Called in the order in which things come, by the task that reads them: it must not wait.
    fn pushed(&self, PushInfo { kind, data }: PushInfo) {
        match kind {
            PushKind::Invalidate => match data.first() {
                Some(Value::Array(keys)) => {
                    for key in keys {
                        match key {
                            Value::BulkString(key) => {
                                if let Some(sandbox) = record::sandbox_of(key) {
                                    self.listener.changed(sandbox);
                                }
                            }
                            _ => self.everything(),
                        }
                    }
                }
                // Everything was flushed; and what is not understood may be about anything.
                _ => self.everything(),
            },
            PushKind::Disconnection => {
                self.end();
                self.closed.notify_one();
            }
            _ => {}
        }
    }

    fn everything(&self) {
        if let Some(watcher) = &self.watcher {
            watcher.all_changed();
        }
    }

    /// The server has answered what was asked so long before `until`; nothing of a connection that is over counts.
    fn vouch(&self, until: Instant) {
        if let Some(watcher) = &self.watcher
            && !self.over.load(SeqCst)
        {
            watcher.vouch(until);
        }
    }

    /// Ends what is vouched for. Of a connection that was over before, nobody hears: the next one vouches for itself.
    fn end(&self) {
        if let Some(watcher) = &self.watcher
            && !self.over.swap(true, SeqCst)
        {
            watcher.lost();
        }
    }
}

/// What the server answered, be it an error; or why there is no answer.
async fn answer(
    limit: Duration,
    call: impl Future<Output = Result<(), RedisError>>,
) -> Result<Result<(), RedisError>, String> {
    match timeout(limit, call).await {
        Err(_) => Err("it gives no answer".into()),
        Ok(Err(error)) if error.is_unrecoverable_error() || error.is_io_error() => Err(error.to_string()),
        Ok(answer) => Ok(answer),
    }
}

async fn track(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    let mut track = redis::cmd("CLIENT");
    track.arg("TRACKING").arg("ON").arg("BCAST").arg("PREFIX").arg(PREFIX);
    track.query_async(&mut connection).await
}

/// That pings are not allowed is an answer, too.
async fn ping(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    match redis::cmd("PING").query_async(&mut connection).await {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => Ok(()),
        pong => pong,
    }
}
