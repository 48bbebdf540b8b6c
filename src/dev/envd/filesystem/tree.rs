//! Looking at directories and changing them. Everything here blocks.

use std::{io, path::PathBuf, vec};

use super::{entry::EntryInfo, owners::Owners};
use crate::dev::envd::{
    files::{Fault, Place, Root, kind_of},
    rpc::Code,
};

/// The longest list, in entries.
const LONGEST: usize = 50_000;

/// What is in a directory and below it, as deep as asked for, each directory before what it holds. What
/// vanishes meanwhile, or may not be looked into, is left out.
pub(super) fn list(root: &Root, top: &Place, depth: u32) -> Result<Vec<EntryInfo>, Fault> {
    let owners = Owners::read();
    let names = names(root, top).map_err(|error| Fault::of(&error, &top.to_string()))?;
    let mut levels = vec![below(top, &names)];
    let mut entries = Vec::new();
    let deepest = usize::try_from(depth.max(1)).unwrap_or(usize::MAX);
    while let Some(level) = levels.last_mut() {
        let Some(place) = level.next() else {
            levels.pop();
            continue;
        };
        let Ok(entry) = EntryInfo::read(root, &place, &owners) else {
            continue;
        };
        if entries.len() == LONGEST {
            let why = format!("more than {LONGEST} entries below '{top}': ask for less depth");
            return Err(Fault::new(Code::ResourceExhausted, why));
        }
        let goes_on = entry.is_directory_itself() && levels.len() < deepest;
        entries.push(entry);
        if goes_on && let Ok(names) = self::names(root, &place) {
            levels.push(below(&place, &names));
        }
    }
    Ok(entries)
}

fn below(place: &Place, names: &[PathBuf]) -> vec::IntoIter<Place> {
    names.iter().map(|name| place.join(name)).collect::<Vec<_>>().into_iter()
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
    root.make_above(place)?;
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
