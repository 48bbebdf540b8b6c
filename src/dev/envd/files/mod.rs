//! envd's `/files`: reading, and writing one file or several, to whoever shows the token or a signed URL.
//!
//! How paths agree: a sandbox's files live below its folder ([`root`]), and relative paths begin in its
//! `/home/user` ([`place`]), where commands start, too ([`beginning`]). Commands see that folder as their root, with
//! the machine's `/usr`, `/etc` and the like over it (`dev/agent/enter`): under `/home/user`, `/root`, `/tmp` and
//! names that the machine does not have, both mean the same file; under the machine's own names, callers see the
//! sandbox's folder and commands the machine's. Where the machine has no user namespaces to give, commands know the
//! home by its real name, `$HOME`; that name means the same file here.

mod beginning;
mod coding;
mod fault;
mod form;
mod metadata;
mod place;
mod range;
mod root;
mod signature;
mod upload;

use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom},
    sync::Arc,
    time::SystemTime,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, FromRequestParts, Query as UrlQuery, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

pub(crate) use self::{
    fault::{Fault, in_background},
    metadata::{Metadata, read as read_metadata},
    place::Place,
    root::{Root, kind_of},
};
use self::{range::Wanted, signature::Operation};
use crate::types::Secret;

const CHUNK: usize = 64 * 1024;

#[derive(Clone)]
struct Files {
    root: Arc<Root>,
    token: Secret,
}

/// What a URL says.
#[derive(Clone, Debug, Default, Deserialize)]
struct Query {
    path: Option<String>,
    username: Option<String>,
    signature: Option<String>,
    signature_expiration: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let query = UrlQuery::try_from_uri(&parts.uri).map_err(|error| Fault::invalid(error.body_text()))?;
        Ok(query.0)
    }
}

/// `GET` and `POST /files`. They look after tokens and signatures themselves.
pub(crate) fn router(root: Arc<Root>, token: Secret) -> Router {
    Router::new()
        .route("/files", get(read).post(write))
        // Uploads go to the disk as they come.
        .layer(DefaultBodyLimit::disable())
        .with_state(Files { root, token })
}

async fn read(State(files): State<Files>, query: Query, request: Request) -> Result<Response, Fault> {
    signature::check(request.headers(), &query, Operation::Read, &files.token)?;
    let place = files.root.place(query.path.as_deref().unwrap_or_default(), query.username.as_deref())?;
    let root = files.root.clone();
    let shown = place.to_string();
    let (mut file, length, modified) = in_background(move || root.open_to_read(&place)).await?;
    let last = range::last_modified(modified, SystemTime::now());
    let mut told = HeaderMap::from_iter([(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))]);
    if let Some(time) = last.and_then(|last| last.to_string().try_into().ok()) {
        told.insert(header::LAST_MODIFIED, time);
    }
    let sent = |file, length: u64| {
        let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
        (kind, [(header::CONTENT_LENGTH, length.to_string())], Body::from_stream(content(file, length)))
    };
    let bounds = |text: String| [(header::CONTENT_RANGE, text)];
    Ok(match range::wanted(request.method(), request.headers(), length, modified, last) {
        Wanted::Whole => (told, sent(file, length)).into_response(),
        Wanted::Part { first, length: some } => {
            file.seek(SeekFrom::Start(first)).map_err(|error| Fault::of(&error, &shown))?;
            let bounds = bounds(format!("bytes {first}-{}/{length}", first + some - 1));
            (StatusCode::PARTIAL_CONTENT, told, bounds, sent(file, some)).into_response()
        }
        Wanted::Beyond => {
            let bounds = bounds(format!("bytes */{length}"));
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            (status, told, bounds, fault::body(status, "the range holds none of the file")).into_response()
        }
        Wanted::Had => (StatusCode::NOT_MODIFIED, told).into_response(),
        Wanted::Changed => {
            let status = StatusCode::PRECONDITION_FAILED;
            (status, told, fault::body(status, "the file is not as it was")).into_response()
        }
    })
}

/// The file may grow meanwhile; what was announced is what is sent. No empty chunks: over HTTP/2 they would
/// be empty frames, which clients take for an attack.
fn content(file: File, length: u64) -> impl Stream<Item = io::Result<Bytes>> {
    let file = tokio::fs::File::from_std(file);
    let chunks = stream::try_unfold((file, length), async |(mut file, left)| {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        if want == 0 {
            return Ok(None);
        }
        let mut chunk = Vec::with_capacity(want);
        let read = (&mut file).take(want as u64).read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (Bytes::from(chunk), (file, left - read as u64))))
    });
    chunks.fuse()
}

async fn write(State(files): State<Files>, query: Query, request: Request) -> Result<Response, Fault> {
    signature::check(request.headers(), &query, Operation::Write, &files.token)?;
    let written = upload::receive(&files.root, &query, request).await?;
    Ok((StatusCode::OK, Json(written)).into_response())
}
