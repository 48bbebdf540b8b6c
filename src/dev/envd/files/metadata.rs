//! What callers want to have noted at a file: extended attributes `user.e2b.*` (xattr(7)), from
//! `X-Metadata-*` headers of an upload.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use axum::http::HeaderMap;
use rustix::{
    fs::{XattrFlags, fremovexattr, fsetxattr, getxattr, listxattr},
    io::Errno,
};

use super::fault::Fault;

const HEADER: &str = "x-metadata-";
const ATTRIBUTE: &str = "user.e2b.";
/// The kernel's bound on the names of all attributes together (xattr(7)).
const LONGEST: usize = 64 * 1024;
/// All notes at one file, in bytes: ext4 keeps no more (ext4(5)), and a list or a form has thousands of files.
const MOST: usize = 4096;
/// With the attribute's first part, the longest name of one that the kernel takes (xattr(7)).
const LONGEST_KEY: usize = 255 - ATTRIBUTE.len();

pub(crate) type Metadata = BTreeMap<String, String>;

/// The first value counts. Names are lower case, as header names are. Fails for more than can be kept.
pub(super) fn from_headers(headers: &HeaderMap) -> Result<Metadata, Fault> {
    let noted = headers.keys().filter_map(|name| {
        let key = name.as_str().strip_prefix(HEADER).filter(|key| !key.is_empty())?;
        let value = headers.get(name)?;
        Some((key.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    let noted: Metadata = noted.collect();
    if noted.keys().any(|key| key.len() > LONGEST_KEY) || size(&noted) > MOST {
        return Err(Fault::invalid(format!("{HEADER}*: {MOST} bytes at most, and {LONGEST_KEY} in a name")));
    }
    Ok(noted)
}

pub(super) fn size(noted: &Metadata) -> usize {
    noted.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// What is noted at a file, by a path that names it. What cannot be read is as good as not there, and what is more
/// than callers may note.
pub(crate) fn read(file: &Path) -> Metadata {
    let noted = names(file).into_iter().filter_map(|name| {
        let mut value = vec![0; MOST];
        let length = getxattr(file, &name, &mut value).ok()?;
        value.truncate(length);
        Some((name.strip_prefix(ATTRIBUTE)?.to_owned(), String::from_utf8(value).ok()?))
    });
    let mut left = MOST;
    let fits = |(key, value): &(String, String)| {
        let rest = left.checked_sub(key.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    noted.filter(fits).collect()
}

/// Replaces what is noted at the file. Fails where the file system keeps no such attributes, unless there is
/// nothing to keep.
pub(super) fn write(file: &OwnedFd, by_path: &Path, metadata: &Metadata) -> io::Result<()> {
    for name in names(by_path) {
        match fremovexattr(file, &name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for (key, value) in metadata {
        fsetxattr(file, format!("{ATTRIBUTE}{key}"), value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

fn names(file: &Path) -> Vec<String> {
    let mut names = vec![0; LONGEST];
    let length = listxattr(file, &mut names).unwrap_or_default();
    let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let names = names.filter_map(|name| OsStr::from_bytes(name).to_str());
    names.filter(|name| name.starts_with(ATTRIBUTE)).map(str::to_owned).collect()
}
