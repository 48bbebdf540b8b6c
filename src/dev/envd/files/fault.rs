//! What goes wrong with files, as `/files` tells it and as the Connect protocol does.

use std::io;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::dev::envd::rpc::{self, Code};

/// Told with a status and a whole number as `code` at `/files`, with a word as `code` by Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// What the kernel said of this path.
    pub(crate) fn of(error: &io::Error, path: &str) -> Self {
        let path = format!("path '{path}'");
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::new(Code::NotFound, format!("{path} does not exist")),
            Some(Errno::EXIST | Errno::NOTEMPTY) => Self::new(Code::AlreadyExists, format!("{path} already exists")),
            Some(Errno::NOTDIR) => Self::invalid(format!("{path} is not a directory")),
            Some(Errno::ISDIR) => Self::invalid(format!("{path} is a directory")),
            Some(Errno::INVAL | Errno::NAMETOOLONG) => Self::invalid(format!("{path}: {error}")),
            Some(Errno::LOOP) => Self::new(Code::FailedPrecondition, format!("{path}: too many symbolic links")),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                Self::new(Code::PermissionDenied, format!("{path}: {error}"))
            }
            Some(Errno::NOSPC | Errno::DQUOT) => Self::new(Code::ResourceExhausted, "not enough disk space available"),
            Some(Errno::OPNOTSUPP) => {
                Self::new(Code::FailedPrecondition, format!("{path}: its file system cannot do that"))
            }
            // Programs of the sandbox are in the way.
            None if error.kind() == io::ErrorKind::TimedOut => Self::new(Code::Aborted, format!("{path}: {error}")),
            _ => Self::new(Code::Internal, format!("{path}: {error}")),
        }
    }

    /// The same where the path is looked for: nothing can be below a file, so there is no such path.
    pub(crate) fn looking(error: &io::Error, path: &str) -> Self {
        let missing = io::Error::from(Errno::NOENT);
        Self::of(if error.kind() == io::ErrorKind::NotADirectory { &missing } else { error }, path)
    }

    fn status(&self) -> StatusCode {
        match self.code {
            // What SDKs know as "not enough space".
            Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
            code => code.status(),
        }
    }
}

impl From<Fault> for rpc::Error {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code, fault.message)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        (status, body(status, &self.message)).into_response()
    }
}

/// What is wrong, as `/files` tells it.
pub(super) fn body(status: StatusCode, message: &str) -> Json<Value> {
    Json(json!({ "code": status.as_u16(), "message": message }))
}

/// Runs what blocks where that does no harm.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.unwrap_or_else(|error| Err(Fault::new(Code::Internal, error.to_string())))
}
