//! Looking at directories and changing them. Everything here blocks.

use std::{io, path::PathBuf};

use super::{entry::EntryInfo, owners::Owners};
use crate::dev::envd::{
    files::{Fault, Place, Root, kind_of},
    rpc::Code,
};

/// The longest list, in entries and in what they take in memory, in bytes.
const LONGEST: usize = 50_000;
const LARGEST: usize = 32 << 20;

/// What is in a directory and below it, as deep as asked for, each directory before what it holds. What
/// vanishes meanwhile, or may not be looked into, is left out.
pub(super) fn list(root: &Root, top: &Place, depth: u32) -> Result<Vec<EntryInfo>, Fault> {
    let owners = Owners::read();
    let names = names(root, top).map_err(|error| Fault::of(&error, &top.to_string()))?;
    let (mut found, mut size) = (names.len(), 0);
    let mut levels = vec![(top.clone(), names.into_iter())];
    let mut entries = Vec::new();
    let deepest = usize::try_from(depth.max(1)).unwrap_or(usize::MAX);
    while let Some((directory, names)) = levels.last_mut() {
        // Also what is only known by name yet is in memory.
        if found > LONGEST || size > LARGEST {
            let why = format!("more than {LONGEST} entries or {LARGEST} bytes below '{top}': ask for less depth");
            return Err(Fault::new(Code::ResourceExhausted, why));
        }
        let Some(name) = names.next() else {
            levels.pop();
            continue;
        };
        let place = directory.join(name);
        let Ok(entry) = EntryInfo::read(root, &place, &owners) else {
            continue;
        };
        size += entry.size_in_memory();
        let goes_on = entry.is_directory_itself() && levels.len() < deepest;
        entries.push(entry);
        if goes_on && let Ok(names) = self::names(root, &place) {
            found += names.len();
            levels.push((place, names.into_iter()));
        }
    }
    Ok(entries)
}

/// In order.
fn names(root: &Root, place: &Place) -> io::Result<Vec<PathBuf>> {
    let directory = root.directory(place)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.path_of(&directory))? {
        // One more than can be told is enough to say so.
        if names.len() > LONGEST {
            break;
        }
        names.push(PathBuf::from(entry?.file_name()));
    }
    names.sort();
    Ok(names)
}

pub(super) fn make(root: &Root, place: &Place) -> Result<EntryInfo, Fault> {
    let exists = || Fault::new(Code::AlreadyExists, format!("directory already exists: {place}"));
    match root.handle(place, true) {
        Ok((_, stat)) if kind_of(&stat).is_dir() => return Err(exists()),
        Ok(_) => return Err(Fault::invalid(format!("path already exists but it is not a directory: {place}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Fault::of(&error, &place.to_string())),
    }
    if !root.make_directory(place)? {
        return Err(exists());
    }
    stat(root, place)
}

pub(super) fn stat(root: &Root, place: &Place) -> Result<EntryInfo, Fault> {
    EntryInfo::read(root, place, &Owners::read())
}

pub(super) fn rename(root: &Root, from: &Place, to: &Place) -> Result<EntryInfo, Fault> {
    root.handle(from, false).map_err(|error| Fault::looking(&error, &from.to_string()))?;
    root.rename(from, to)?;
    stat(root, to)
}
