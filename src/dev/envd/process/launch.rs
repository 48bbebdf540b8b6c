//! As whom, where and with what environment a program begins.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, atomic::Ordering},
};

use super::messages::ProcessConfig;
use crate::dev::{
    agent::{
        enter::{self, below},
        environment,
    },
    envd::{
        Envd,
        rpc::{Call, Code, Error},
        user::{USER, User},
    },
    variables::environment_fault,
};

/// Programs of a machine without user namespaces see other files than the SDK's calls: their people are told.
pub(super) fn tell_once_if_without_root(envd: &Arc<Envd>) {
    if envd.processes.looked.swap(true, Ordering::Relaxed) {
        return;
    }
    let looks = enter::Args::new(&envd.folder, Path::new("/"), &USER, "true".as_ref()).or_nothing();
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

pub(super) fn command(envd: &Envd, call: &Call, config: &ProcessConfig, terminal: bool) -> Result<Command, Error> {
    let bad = |text: &str| Error::new(Code::InvalidArgument, text);
    if config.cmd.is_empty() || config.cmd.contains('\0') || config.args.iter().any(|arg| arg.contains('\0')) {
        return Err(bad("the command is none that can be run"));
    }
    if environment_fault(&config.envs).is_some() {
        return Err(bad("envs holds a name or value that no environment can hold"));
    }
    let user = User::of(call.user.as_deref())?;
    let cwd = envd.root.beginning(config.cwd.as_deref().unwrap_or_default(), call.user.as_deref())?;
    let mut enter = enter::Args::new(&envd.folder, &cwd.inside(), user, config.cmd.as_ref());
    if terminal {
        enter = enter.with_terminal();
    }
    let mut command = enter.command();
    command.args(&config.args).env_clear().envs(environment::of_program(user, &envd.environment, &config.envs));
    Ok(command)
}
