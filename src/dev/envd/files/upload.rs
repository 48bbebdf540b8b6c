//! Uploads: to a file without a name first, so that one that breaks off changes nothing; then into place, as
//! programs write, so that links, modes and watchers stay right.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Seek as _, Write as _},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::{FromRequest as _, Multipart, Request, multipart::MultipartError},
    http::header,
};
use futures_util::{Stream, StreamExt as _};
use serde::Serialize;
use tokio::time::timeout;

use super::{
    Query,
    coding::unpacked,
    fault::{Fault, in_background},
    metadata::{self, Metadata},
    place::Place,
    root::Root,
};
use crate::dev::envd::rpc::Code;

/// How long a client may send nothing in the middle of an upload.
const SILENCE: Duration = Duration::from_mins(2);
/// Files of one form.
const MAX_FILES: usize = 10_000;

#[derive(Serialize)]
pub(super) struct Written {
    name: String,
    path: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
}

/// A form with files in its parts `file`, or one file as it is.
pub(super) async fn receive(root: &Arc<Root>, query: &Query, request: Request) -> Result<Vec<Written>, Fault> {
    let metadata = metadata::from_headers(request.headers())?;
    let request = unpacked(request)?;
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("multipart/form-data"));
    let user = query.username.as_deref();
    if !is_form {
        let place = root.place(query.path.as_deref().unwrap_or_default(), user)?;
        let chunks = request.into_body().into_data_stream();
        return Ok(vec![store(root, place, chunks, &metadata).await?]);
    }
    let broken = |error: MultipartError| Fault::invalid(format!("error reading form: {}", error.body_text()));
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| Fault::invalid(error.body_text()))?;
    let (mut written, mut places) = (Vec::new(), HashSet::new());
    while let Some(part) = heard(form.next_field()).await?.map_err(broken)? {
        if part.name() != Some("file") {
            continue;
        }
        let path = query.path.as_deref().or(part.file_name()).unwrap_or_default();
        let place = root.place(path, user)?;
        if places.contains(&place) {
            return Err(Fault::invalid(format!("you cannot upload multiple files to the same path '{place}'")));
        }
        if places.len() == MAX_FILES {
            return Err(Fault::invalid(format!("more than {MAX_FILES} files in one form")));
        }
        places.insert(place.clone());
        written.push(store(root, place, part, &metadata).await?);
    }
    Ok(written)
}

async fn heard<T>(next: impl Future<Output = T>) -> Result<T, Fault> {
    let late = |_| Fault::new(Code::DeadlineExceeded, "the upload stopped in the middle");
    timeout(SILENCE, next).await.map_err(late)
}

async fn store<E: std::error::Error>(
    root: &Arc<Root>,
    place: Place,
    mut chunks: impl Stream<Item = Result<Bytes, E>> + Unpin,
    metadata: &Metadata,
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

/// The copy stays in the kernel.
fn install(root: &Root, place: &Place, mut spool: File, noted: &Metadata) -> Result<(), Fault> {
    let mut file = root.open_to_write(place)?;
    let copied = spool.rewind().and_then(|()| io::copy(&mut spool, &mut file));
    copied.map_err(|error| Fault::of(&error, &place.to_string()))?;
    let file = file.into();
    metadata::write(&file, &root.path_of(&file), noted).map_err(|error| Fault::of(&error, &place.to_string()))
}

fn reasons(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
