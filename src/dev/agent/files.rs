//! envd's plain HTTP routes: `GET /health`, `GET` and `POST /files?path=`. A sandbox's files live below
//! its folder; no path, no `..` and no symbolic link leads out of it, as if the folder were the root.

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, FromRequest as _, Multipart, Query, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::types::Secret;

/// Where relative paths begin.
pub(super) const HOME: &str = "home/user";

struct Sandbox {
    folder: PathBuf,
    token: Secret,
}

pub(super) fn router(folder: PathBuf, token: Secret) -> Router {
    let sandbox = Arc::new(Sandbox { folder, token });
    Router::new()
        .route("/files", get(read).post(write))
        .fallback(async || Fault::new(StatusCode::NOT_FOUND, "no such route"))
        .method_not_allowed_fallback(async || Fault::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
        .layer(middleware::from_fn_with_state(sandbox.clone(), check_token))
        // Uploads go to the disk as they come.
        .layer(DefaultBodyLimit::disable())
        .with_state(sandbox)
}

async fn check_token(
    State(sandbox): State<Arc<Sandbox>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let shown = headers.get("x-access-token").map_or(&b""[..], |token| token.as_bytes());
    if sandbox.token.matches(shown) {
        next.run(request).await
    } else {
        let text = "unauthorized access, please provide a valid access token in X-Access-Token";
        Fault::new(StatusCode::UNAUTHORIZED, text).into_response()
    }
}

#[derive(Deserialize)]
struct Target {
    path: Option<String>,
}

async fn read(State(sandbox): State<Arc<Sandbox>>, Query(target): Query<Target>) -> Result<Response, Fault> {
    let path = target.path.unwrap_or_default();
    let opened = in_background(move || open_to_read(&sandbox.folder, &path)).await?;
    let length = opened.1;
    let chunks = stream::try_unfold(opened.0, async |mut file| {
        let mut chunk = Vec::with_capacity(64 * 1024);
        let read = file.read_buf(&mut chunk).await?;
        Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(chunk), file)))
    });
    let headers =
        [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    // The file may grow meanwhile; what was announced is what is sent.
    let body = Body::from_stream(limit(chunks, length));
    Ok((headers, body).into_response())
}

fn limit(chunks: impl Stream<Item = io::Result<Bytes>>, mut left: u64) -> impl Stream<Item = io::Result<Bytes>> {
    chunks
        .map(move |chunk| {
            let mut chunk = chunk?;
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            Ok(chunk)
        })
        .take_while(|chunk| {
            let more = !matches!(chunk, Ok(chunk) if chunk.is_empty());
            async move { more }
        })
}

async fn write(
    State(sandbox): State<Arc<Sandbox>>,
    Query(target): Query<Target>,
    request: Request,
) -> Result<Response, Fault> {
    let is_form = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("multipart/form-data"));
    let mut written = Vec::new();
    if is_form {
        let mut form = Multipart::from_request(request, &())
            .await
            .map_err(|error| Fault::new(StatusCode::BAD_REQUEST, error.body_text()))?;
        let broken =
            |error: axum::extract::multipart::MultipartError| Fault::new(StatusCode::BAD_REQUEST, error.body_text());
        while let Some(part) = form.next_field().await.map_err(broken)? {
            if part.name() != Some("file") {
                continue;
            }
            let path = target.path.clone().or_else(|| part.file_name().map(str::to_owned));
            let chunks = part.map(|chunk| chunk.map_err(io::Error::other));
            written.push(store(&sandbox, path.unwrap_or_default(), chunks).await?);
        }
    } else {
        let chunks = request.into_body().into_data_stream();
        let chunks = chunks.map(|chunk| chunk.map_err(io::Error::other));
        written.push(store(&sandbox, target.path.unwrap_or_default(), chunks).await?);
    }
    Ok(Json(written).into_response())
}

async fn store(
    sandbox: &Arc<Sandbox>,
    path: String,
    mut chunks: impl Stream<Item = io::Result<Bytes>> + Unpin,
) -> Result<serde_json::Value, Fault> {
    let (owner, wanted) = (sandbox.clone(), path.clone());
    let mut file = in_background(move || open_to_write(&owner.folder, &wanted)).await?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Fault::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        file = in_background(move || {
            file.write_all(&chunk).map_err(|error| Fault::of(&error, ""))?;
            Ok(file)
        })
        .await?;
    }
    let inside = inside(&path);
    let name = inside.file_name().unwrap_or_default().to_string_lossy();
    let path = Path::new("/").join(&inside);
    Ok(json!({ "name": name, "path": path, "type": "file" }))
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Fault::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

/// The path below the folder: `..` stops at the root, as it does in a file system.
fn inside(path: &str) -> PathBuf {
    let mut inside = PathBuf::new();
    if !path.starts_with('/') {
        inside.push(HOME);
    }
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => {
                inside.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    inside
}

/// The kernel resolves the path with the folder as root, symbolic links too (openat2(2)).
fn open_inside(folder: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from(0o644) } else { Mode::empty() };
    // Without NONBLOCK, a named pipe would be waited for.
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(folder, path, flags, mode, resolve)?)
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(open(folder, flags, Mode::empty())?)
}

fn is_file(file: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

fn open_to_read(folder: &Path, path: &str) -> Result<(tokio::fs::File, u64), Fault> {
    let fault = |error: io::Error| Fault::of(&error, path);
    let folder = open_folder(folder).map_err(fault)?;
    let file = open_inside(&folder, &inside(path), OFlags::RDONLY).map_err(fault)?;
    if !is_file(&file).map_err(fault)? {
        return Err(Fault::new(StatusCode::BAD_REQUEST, format!("'{path}' is not a file")));
    }
    let file = std::fs::File::from(file);
    let length = file.metadata().map_err(fault)?.len();
    Ok((tokio::fs::File::from_std(file), length))
}

fn open_to_write(folder: &Path, path: &str) -> Result<std::fs::File, Fault> {
    let fault = |error: io::Error| Fault::of(&error, path);
    let inside = inside(path);
    if inside.as_os_str().is_empty() || path.ends_with('/') || path.is_empty() {
        return Err(Fault::new(StatusCode::BAD_REQUEST, format!("'{path}' is not the path of a file")));
    }
    let folder = open_folder(folder).map_err(fault)?;
    let mut parent = PathBuf::new();
    for part in inside.parent().into_iter().flat_map(Path::components) {
        let above = if parent.as_os_str().is_empty() { Path::new(".") } else { &parent };
        let above = open_inside(&folder, above, OFlags::DIRECTORY | OFlags::RDONLY).map_err(fault)?;
        match mkdirat(&above, Path::new(&part), Mode::from(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(fault(error.into())),
        }
        parent.push(part);
    }
    let file = open_inside(&folder, &inside, OFlags::WRONLY | OFlags::CREATE).map_err(fault)?;
    if !is_file(&file).map_err(fault)? {
        return Err(Fault::new(StatusCode::BAD_REQUEST, format!("'{path}' is not a file")));
    }
    let file = std::fs::File::from(file);
    file.set_len(0).map_err(fault)?;
    Ok(file)
}

/// envd's error: a whole number as `code`, and a message.
#[derive(Debug)]
struct Fault {
    status: StatusCode,
    message: String,
}

impl Fault {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn of(error: &io::Error, path: &str) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::new(StatusCode::NOT_FOUND, format!("path '{path}' does not exist"))
            }
            io::ErrorKind::IsADirectory => Self::new(StatusCode::BAD_REQUEST, format!("path '{path}' is a directory")),
            io::ErrorKind::PermissionDenied => {
                Self::new(StatusCode::FORBIDDEN, format!("path '{path}': permission denied"))
            }
            io::ErrorKind::StorageFull => Self::new(StatusCode::INSUFFICIENT_STORAGE, "the disk is full"),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("path '{path}': {error}")),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.status.as_u16(), "message": self.message });
        (self.status, Json(body)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for (path, want) in [
            ("/a/b", "a/b"),
            ("a", "home/user/a"),
            ("/../../etc/passwd", "etc/passwd"),
            ("../../../../etc/passwd", "etc/passwd"),
            ("/a/./../b", "b"),
            ("/", ""),
        ] {
            assert_eq!(inside(path), Path::new(want), "{path}");
        }
    }

    #[test]
    fn links_are_resolved_as_if_the_folder_were_the_root() {
        let outside = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("secret"), "x").expect("written");
        let folder = tempfile::tempdir().expect("a folder");
        symlink(outside.path(), folder.path().join("absolute")).expect("a link");
        symlink("../../../../../..", folder.path().join("up")).expect("a link");
        let name = outside.path().join("secret");
        let over_up = format!("/up{}", name.display());
        for path in ["/absolute/secret", over_up.as_str()] {
            let fault = open_to_read(folder.path(), path).expect_err(path);
            assert_eq!(fault.status, StatusCode::NOT_FOUND, "{path}");
        }
        let _ = open_to_write(folder.path(), "/absolute/new");
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn files_are_written_with_their_folders_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        for text in ["a longer text", "short"] {
            let mut file = open_to_write(folder.path(), "/a/b/c.txt").expect("opened");
            file.write_all(text.as_bytes()).expect("written");
        }
        let text = fs::read_to_string(folder.path().join("a/b/c.txt")).expect("read");
        assert_eq!(text, "short");
        for bad in ["", "/", "/a/b", "/a/"] {
            let fault = open_to_write(folder.path(), bad).expect_err(bad);
            assert_eq!(fault.status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}
