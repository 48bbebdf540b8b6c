//! Uploads: to a file without a name first, so that one that breaks off or cannot be kept changes nothing (but where
//! a program takes the room between trial and copy: then a new file stays, empty); then into place, as programs write,
//! so that links, modes and watchers stay right.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use axum::{body::Bytes, extract::Request, http::header};
use futures_util::{Stream, StreamExt as _};
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::{Errno, retry_on_intr},
};
use serde::{Serialize, Serializer};
use tokio::time::timeout;

use super::{
    Query,
    coding::unpacked,
    fault::{Fault, in_background},
    form::Form,
    metadata::{self, Metadata},
    place::Place,
    root::Root,
};
use crate::dev::envd::rpc::Code;

/// How long a client may send nothing in the middle of an upload.
const SILENCE: Duration = Duration::from_mins(2);
/// Files of one form, and parts that are no files.
const MAX_FILES: usize = 10_000;
/// What the answer to a form tells of its files, paths and notes, in bytes.
const MOST_TOLD: usize = 4 << 20;

#[derive(Serialize)]
pub(super) struct Written {
    name: String,
    path: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty", serialize_with = "shared")]
    metadata: Arc<Metadata>,
}

fn shared<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    T::serialize(value, serializer)
}

/// A form with files in its parts `file`, or one file as it is.
pub(super) async fn receive(root: &Arc<Root>, query: &Query, request: Request) -> Result<Vec<Written>, Fault> {
    let metadata = Arc::new(metadata::from_headers(request.headers())?);
    let request = unpacked(request)?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"));
    let user = query.username.as_deref();
    if !is_form {
        let place = root.place(query.path.as_deref().unwrap_or_default(), user)?;
        let chunks = request.into_body().into_data_stream();
        return Ok(vec![store(root, place, chunks, &metadata).await?]);
    }
    let mut form = Form::begin(request).await?;
    let (mut written, mut places, mut others, mut told) = (Vec::new(), HashSet::new(), 0, 0);
    while let Some(part) = form.next().await? {
        let Some(name) = part.file_name() else {
            others += 1;
            if others > MAX_FILES {
                return Err(Fault::invalid(format!("more than {MAX_FILES} parts in one form that are no files")));
            }
            part.pass_over().await?;
            continue;
        };
        let place = root.place(query.path.as_deref().unwrap_or(&name), user)?;
        if places.contains(&place) {
            return Err(Fault::invalid(format!("you cannot upload multiple files to the same path '{place}'")));
        }
        if places.len() == MAX_FILES {
            return Err(Fault::invalid(format!("more than {MAX_FILES} files in one form")));
        }
        told += place.as_path().as_os_str().len() + metadata::size(&metadata);
        if told > MOST_TOLD {
            return Err(Fault::invalid(format!("more than {MOST_TOLD} bytes of paths and notes in one form")));
        }
        places.insert(place.clone());
        written.push(store(root, place, part.content(), &metadata).await?);
    }
    Ok(written)
}

pub(super) async fn heard<T>(next: impl Future<Output = T>) -> Result<T, Fault> {
    let late = |_| Fault::new(Code::DeadlineExceeded, "the upload stopped in the middle");
    timeout(SILENCE, next).await.map_err(late)
}

async fn store<E: std::error::Error>(
    root: &Arc<Root>,
    place: Place,
    mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    metadata: &Arc<Metadata>,
) -> Result<Written, Fault> {
    let owner = root.clone();
    let mut spool = in_background(move || owner.nameless_file().map_err(|error| Fault::of(&error, "/"))).await?;
    while let Some(chunk) = heard(chunks.next()).await? {
        let chunk = chunk.map_err(|error| Fault::invalid(format!("the upload broke off: {}", reasons(&error))))?;
        spool = in_background(move || {
            spool.write_all(&chunk).map_err(|error| Fault::of(&error, "/"))?;
            Ok(spool)
        })
        .await?;
    }
    let (owner, noted) = (root.clone(), metadata.clone());
    in_background(move || {
        install(&owner, &place, spool, &noted)?;
        Ok(Written { name: place.name(), path: place.to_string(), r#type: "file", metadata: noted })
    })
    .await
}

/// The copy stays in the kernel. What can fail is tried before anything is changed: notes at the file without a name,
/// which is on the same file system as a rule; room by asking for it.
fn install(root: &Root, place: &Place, spool: File, noted: &Metadata) -> Result<(), Fault> {
    let fault = |error: io::Error| Fault::of(&error, &place.to_string());
    let spool = OwnedFd::from(spool);
    metadata::write(&spool, &root.path_of(&spool), noted).map_err(fault)?;
    let mut spool = File::from(spool);
    let length = spool.metadata().map_err(fault)?.len();
    if root.handle(place, true).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        // Asked for before the file is made: nobody could tell later what else there is to be taken away again (the
        // target of a link, directories), nor whether a program has begun to use it.
        root.nameless_file().and_then(|trial| reserve(&trial, length)).map_err(fault)?;
    }
    let mut file = root.open_to_write(place)?;
    reserve(&file, length).map_err(fault)?;
    let copied = spool.rewind().and_then(|()| io::copy(&mut spool, &mut file)).and_then(|_| file.set_len(length));
    copied.map_err(fault)?;
    let file = file.into();
    metadata::write(&file, &root.path_of(&file), noted).map_err(fault)
}

/// Room for so many bytes, without a change of the file.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, length)) {
        // File systems that cannot do that: their people take the risk.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => {
            // What it got of it is given back.
            let _ = file.metadata().and_then(|facts| file.set_len(facts.len()));
            Err(error.into())
        }
    }
}

fn reasons(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::statfs;

    use super::*;

    /// statfs(2)
    const TMPFS_MAGIC: i64 = 0x0102_1994;

    #[test]
    fn where_there_is_no_room_nothing_is_made_and_nothing_goes() {
        // More than file systems have, but not more than files may have.
        const LENGTH: u64 = 8 << 40;
        // In memory of a known size, where it is known at once: elsewhere all that is free would be taken first.
        let is_bounded = statfs("/dev/shm").is_ok_and(|told| told.f_type == TMPFS_MAGIC && told.f_blocks > 0);
        if !is_bounded {
            eprintln!("/dev/shm is no file system in memory with a bound: tests/playground/full.rs has one of its own");
            return;
        }
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let root = Root::new(folder.path()).expect("a root");
        fs::write(folder.path().join("old"), "old").expect("written");
        symlink("/target", folder.path().join("link")).expect("a link");
        for path in ["/new", "/old", "/link", "/a/b/new"] {
            let spool = root.nameless_file().expect("a file");
            spool.set_len(LENGTH).expect("a hole");
            let place = root.place(path, None).expect("a place");
            let fault = install(&root, &place, spool, &Metadata::default()).expect_err(path);
            assert_eq!(fault.code, Code::ResourceExhausted, "{path}");
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).expect("read").map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            assert_eq!(names, ["link", "old"], "{path}");
        }
        assert_eq!(fs::read_to_string(folder.path().join("old")).expect("read"), "old");
    }
}
