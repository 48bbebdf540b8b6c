//! As whom, where and with what environment a program begins.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering},
};

use super::messages::ProcessConfig;
use crate::dev::{
    agent::enter::{self, below},
    envd::{
        Envd,
        rpc::{Call, Code, Error},
    },
    variables::environment_fault,
};

/// Programs of a machine without user namespaces see other files than the SDK's calls: their people are told.
pub(super) fn tell_once_if_without_root(envd: &Arc<Envd>) {
    if envd.processes.looked.swap(true, Ordering::Relaxed) {
        return;
    }
    let looks = enter::Args::new(&envd.folder, Path::new("/"), USER.uid, "true".as_ref()).or_nothing();
    let mut command = looks.command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(started) = envd.children.start(&mut command) else {
        return;
    };
    let home = below(&envd.folder, Path::new(USER.home));
    tokio::spawn(async move {
        if started.exit.await.is_ok_and(|status| status.code() == Some(enter::NO_ROOT)) {
            let home = home.display();
            eprintln!("this machine gives no user namespaces: programs see its own files, and begin in {home}");
        }
    });
}

struct User {
    name: &'static str,
    uid: u32,
    home: &'static str,
}

const USER: User = User { name: "user", uid: 1000, home: "/home/user" };
const ROOT: User = User { name: "root", uid: 0, home: "/root" };

impl User {
    fn of(call: &Call) -> Result<&'static Self, Error> {
        match call.user.as_deref() {
            None | Some("user") => Ok(&USER),
            Some("root") => Ok(&ROOT),
            Some(name) => Err(Error::new(Code::Unauthenticated, format!("invalid username: '{name}'"))),
        }
    }
}

pub(super) fn command(envd: &Envd, call: &Call, config: &ProcessConfig, terminal: bool) -> Result<Command, Error> {
    let bad = |text: String| Error::new(Code::InvalidArgument, text);
    if config.cmd.is_empty() || config.cmd.contains('\0') || config.args.iter().any(|arg| arg.contains('\0')) {
        return Err(bad("the command is none that can be run".to_owned()));
    }
    if environment_fault(&config.envs).is_some() {
        return Err(bad("envs holds a name or value that no environment can hold".to_owned()));
    }
    let user = User::of(call)?;
    let cwd = resolve(user, config.cwd.as_deref().unwrap_or_default());
    if cwd.as_os_str().as_encoded_bytes().contains(&0) || !is_folder(&envd.folder, &cwd) {
        return Err(bad(format!("cwd '{}' does not exist", cwd.display())));
    }
    let mut enter = enter::Args::new(&envd.folder, &cwd, user.uid, config.cmd.as_ref());
    if terminal {
        enter = enter.with_terminal();
    }
    let mut command = enter.command();
    command.args(&config.args).env_clear().envs(environment(envd, user)).envs(&config.envs);
    Ok(command)
}

/// What envd gives every program; what the playground itself was started with is nobody's business.
fn environment(envd: &Envd, user: &User) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = [("HOME", user.home), ("USER", user.name), ("LOGNAME", user.name)]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for name in ["PATH", "TZ"] {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.to_owned(), value);
        }
    }
    all.extend(envd.environment.clone());
    all
}

/// As envd: `~` is the home, and relative paths begin there.
fn resolve(user: &User, path: &str) -> PathBuf {
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => path,
    };
    Path::new(user.home).join(path)
}

/// In the sandbox's folder or, beside it, on the machine.
fn is_folder(root: &Path, path: &Path) -> bool {
    below(root, path).is_dir() || path.is_dir() && !path.starts_with("/home/user") && !path.starts_with("/tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        for (path, want) in
            [("", "/home/user/"), ("a", "/home/user/a"), ("~", "/home/user/"), ("~/a", "/home/user/a"), ("/b", "/b")]
        {
            assert_eq!(resolve(&USER, path), Path::new(want), "{path}");
        }
        assert_eq!(resolve(&ROOT, "~x"), Path::new("/root/~x"));
    }
}
