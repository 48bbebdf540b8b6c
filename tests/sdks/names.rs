//! Names that one program alone resolves.

use std::{ffi::OsStr, path::Path};

use tokio::process::Command;

/// This program, which reads the file instead of `/etc/hosts`.
pub(crate) fn with_hosts(hosts: &Path, program: impl AsRef<OsStr>) -> Command {
    // A mount of its own, in a namespace of its own: the machine's file is as it was.
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", r#"mount --bind "$0" /etc/hosts && exec "$@""#]);
    command.arg(hosts).arg(program);
    command
}
