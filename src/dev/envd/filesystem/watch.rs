//! A directory's changes as they happen (inotify(7)), below it as well if asked for. What comes faster than
//! it is read waits in the kernel, whose queue is bounded; when that is full the watch ends with an error.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use serde::Serialize;
use tokio::io::unix::AsyncFd;

use super::{entry::EntryInfo, owners::Owners};
use crate::dev::envd::{
    files::{Fault, Place, Root, in_background},
    rpc::Code,
};

/// Directories of one watch.
const MOST_DIRECTORIES: usize = 8192;
/// What is found in new directories at once.
const MOST_FOUND: usize = 8192;
const BUFFER: usize = 16 * 1024;

/// `filesystem.FilesystemEvent`.
#[derive(Debug, Serialize)]
pub(super) struct Event {
    /// From the watched directory on.
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<EntryInfo>,
}

impl Event {
    /// In bytes, roughly.
    pub(super) fn size_in_memory(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.entry.as_ref().map_or(0, EntryInfo::size_in_memory)
    }
}

const CREATE: &str = "EVENT_TYPE_CREATE";
const WRITE: &str = "EVENT_TYPE_WRITE";
const REMOVE: &str = "EVENT_TYPE_REMOVE";
const RENAME: &str = "EVENT_TYPE_RENAME";
const CHMOD: &str = "EVENT_TYPE_CHMOD";

pub(super) struct Watch {
    queue: AsyncFd<OwnedFd>,
    root: Arc<Root>,
    top: Place,
    recursive: bool,
    with_entries: bool,
    /// Each watched directory by the kernel's number for it, from the top on.
    directories: HashMap<i32, PathBuf>,
    /// What was found in new directories, and is told. Its creation may stand in the queue as well, up to this marker.
    found: HashMap<PathBuf, i32>,
    /// What was watched is no longer where it was.
    gone: bool,
}

struct Raw {
    directory: i32,
    flags: ReadFlags,
    name: PathBuf,
}

impl Watch {
    /// Blocks while it goes through the directories; on a runtime all the same, whose reactor it needs.
    pub(super) fn new(root: Arc<Root>, top: Place, recursive: bool, with_entries: bool) -> Result<Self, Fault> {
        let queue = kernel_queue().map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE) => Fault::new(Code::ResourceExhausted, "too many watches on this machine"),
            _ => Fault::new(Code::Internal, format!("no watch: {error}")),
        })?;
        let (directories, found) = (HashMap::new(), HashMap::new());
        let mut watch = Self { queue, root, top, recursive, with_entries, directories, found, gone: false };
        watch.add(Path::new(""), &mut Vec::new())?;
        Ok(watch)
    }

    /// The next changes, at least one. A watch ends with its directory: one that is made anew under the same name is
    /// another.
    pub(super) async fn next(mut self) -> Result<(Vec<Event>, Self), Fault> {
        while !self.gone {
            let batch = {
                let mut ready = self.queue.readable().await.map_err(|error| internal(&error))?;
                match ready.try_io(|queue| read(queue.get_ref())) {
                    Ok(batch) => batch.map_err(|error| internal(&error))?,
                    Err(_) => continue,
                }
            };
            let (events, same) = in_background(move || Ok((self.take_all(&batch)?, self))).await?;
            if !events.is_empty() {
                return Ok((events, same));
            }
            self = same;
        }
        Err(Fault::new(Code::NotFound, format!("the watched directory '{}' is gone: watch again", self.top)))
    }

    fn take_all(&mut self, batch: &[Raw]) -> Result<Vec<Event>, Fault> {
        let owners = self.with_entries.then(Owners::read);
        let mut events = Vec::new();
        for raw in batch {
            self.take(raw, owners.as_ref(), &mut events)?;
        }
        Ok(events)
    }

    fn take(&mut self, raw: &Raw, owners: Option<&Owners>, events: &mut Vec<Event>) -> Result<(), Fault> {
        if raw.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Err(Fault::new(Code::ResourceExhausted, "more changes than could be kept; watch again"));
        }
        if raw.flags.contains(ReadFlags::IGNORED) {
            self.found.retain(|_, marker| *marker != raw.directory);
            let was = self.directories.remove(&raw.directory);
            self.gone |= was.is_some_and(|directory| directory.as_os_str().is_empty());
            return Ok(());
        }
        let Some(directory) = self.directories.get(&raw.directory) else {
            return Ok(());
        };
        let is_top = directory.as_os_str().is_empty();
        let of_itself = raw.name.as_os_str().is_empty();
        // What concerns a directory itself is told by the one above.
        if of_itself && !is_top {
            return Ok(());
        }
        self.gone |= of_itself && raw.flags.contains(ReadFlags::MOVE_SELF);
        let name = if of_itself { PathBuf::from(".") } else { directory.join(&raw.name) };
        let is_directory = raw.flags.contains(ReadFlags::ISDIR) && !of_itself;
        let is_new = raw.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let is_away = raw.flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        let was_found = (is_new || is_away) && self.found.remove(&name).is_some();
        let is_moved = is_directory && raw.flags.contains(ReadFlags::MOVED_TO);
        // But for a directory that has come in the place of the one that was found.
        if was_found && is_new && !(is_moved && self.recursive && self.is_another(&name)) {
            return Ok(());
        }
        for (flags, kind) in [
            (ReadFlags::CREATE | ReadFlags::MOVED_TO, CREATE),
            (ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF, RENAME),
            (ReadFlags::ATTRIB, CHMOD),
            (ReadFlags::MODIFY, WRITE),
            (ReadFlags::DELETE | ReadFlags::DELETE_SELF, REMOVE),
        ] {
            if raw.flags.intersects(flags) {
                events.push(self.event(&name, kind, owners));
            }
        }
        if is_directory && self.recursive {
            if raw.flags.contains(ReadFlags::MOVED_FROM) {
                self.forget(&name);
            }
            if is_new {
                let mut found = Vec::new();
                self.add(&name, &mut found)?;
                self.keep_found(&found);
                events.extend(found.iter().map(|name| self.event(name, CREATE, owners)));
            }
        }
        Ok(())
    }

    /// What is gone has no entry, nor has a successor of the same name.
    fn event(&self, name: &Path, kind: &'static str, owners: Option<&Owners>) -> Event {
        let owners = owners.filter(|_| ![REMOVE, RENAME].contains(&kind));
        let entry = owners.and_then(|owners| EntryInfo::read(&self.root, &self.place(name), owners).ok());
        Event { name: name.display().to_string(), r#type: kind, entry }
    }

    fn place(&self, name: &Path) -> Place {
        if [".", ""].iter().any(|top| name == Path::new(top)) { self.top.clone() } else { self.top.join(name) }
    }

    /// Watches a directory and what is below it. What it holds already came before the watch: it is `found`.
    /// Only the top must be there.
    fn add(&mut self, directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), Fault> {
        let is_top = directory.as_os_str().is_empty();
        let mut todo = vec![directory.to_owned()];
        while let Some(directory) = todo.pop() {
            let place = self.place(&directory);
            match self.add_one(&place) {
                Ok((number, held)) => {
                    self.directories.insert(number, directory.clone());
                    if !self.recursive {
                        continue;
                    }
                    for entry in std::fs::read_dir(self.root.path_of(&held)).into_iter().flatten().flatten() {
                        let name = directory.join(entry.file_name());
                        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                            todo.push(name.clone());
                        }
                        if !is_top {
                            found.push(name);
                        }
                    }
                }
                Err(Errno::NOSPC) => {
                    return Err(Fault::new(Code::ResourceExhausted, "too many watched directories on this machine"));
                }
                Err(error) if directory.as_os_str().is_empty() => {
                    return Err(Fault::of(&error.into(), &place.to_string()));
                }
                // Gone already, or not to be looked into.
                Err(_) => {}
            }
            if self.directories.len() + todo.len() > MOST_DIRECTORIES || found.len() > MOST_FOUND {
                let why = format!("more than {MOST_DIRECTORIES} directories, or too many new files at once");
                return Err(Fault::new(Code::ResourceExhausted, why));
            }
        }
        Ok(())
    }

    /// Marks how far the queue is that may tell of these, too: the end of a watch is told in its turn.
    fn keep_found(&mut self, found: &[PathBuf]) {
        if found.is_empty() {
            return;
        }
        // Rather twice than kept without bound.
        if self.found.len() > MOST_FOUND {
            self.found.clear();
        }
        let queue = self.queue.get_ref();
        // Of a directory that is nobody's sandbox.
        if let Ok(marker) = inotify::add_watch(queue, "/", WatchFlags::DELETE_SELF)
            && inotify::remove_watch(queue, marker).is_ok()
        {
            self.found.extend(found.iter().map(|name| (name.clone(), marker)));
        }
    }

    /// Whether a directory has this name that is not watched yet.
    fn is_another(&self, name: &Path) -> bool {
        match self.add_one(&self.place(name)) {
            Ok((number, _)) => !self.directories.contains_key(&number),
            // It cannot be watched, which is to be told.
            Err(error) => error == Errno::NOSPC,
        }
    }

    fn add_one(&self, place: &Place) -> Result<(i32, OwnedFd), Errno> {
        let held = self.root.directory(place).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        Ok((inotify::add_watch(self.queue.get_ref(), self.root.path_of(&held), flags)?, held))
    }

    /// A directory that moved away; should it come back it is watched anew.
    fn forget(&mut self, directory: &Path) {
        self.found.retain(|path, _| !path.starts_with(directory));
        let gone = self.directories.iter().filter(|(_, path)| path.starts_with(directory));
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.directories.remove(&number);
            let _ = inotify::remove_watch(self.queue.get_ref(), number);
        }
    }
}

#[expect(deprecated, reason = "its way out is `unsafe`; unsound is it only where `as_raw_fd` lies")]
fn kernel_queue() -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)
}

fn internal(error: &io::Error) -> Fault {
    Fault::new(Code::Internal, format!("the watch broke: {error}"))
}

/// One buffer full.
fn read(queue: &OwnedFd) -> io::Result<Vec<Raw>> {
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    let mut batch = Vec::new();
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        batch.push(Raw { directory: event.wd(), flags: event.events(), name: name.unwrap_or_default() });
        if reader.is_buffer_empty() {
            return Ok(batch);
        }
    }
}

#[cfg(test)]
mod tests;
