//! The SDKs' programs in the environments of their users: in the clear, and over TLS under one domain.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{process::Command, time::timeout};

use crate::{
    installed::{Installed, NEWEST, OLD},
    names::with_hosts,
    playground_support::program::Program,
};

const LIMIT: Duration = Duration::from_mins(2);
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What users export.
pub(crate) const PLAIN: [&str; 3] = ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"];
pub(crate) const OVER_TLS: [&str; 4] = ["E2B_API_KEY", "E2B_DOMAIN", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"];

/// A program that runs in one of these environments.
pub(crate) struct Run<'a> {
    pub(crate) program: &'a Program,
    pub(crate) variables: &'a [&'static str],
    /// What the resolver reads instead of /etc/hosts.
    pub(crate) hosts: Option<PathBuf>,
}

impl Run<'_> {
    /// Its standard output; fails where it fails.
    pub(crate) async fn says(&self, folder: &Path, line: &[&str]) -> String {
        let mut command = match &self.hosts {
            None => Command::new(line[0]),
            Some(hosts) => with_hosts(hosts, line[0]),
        };
        command.env_clear().envs(["PATH", "HOME"].map(|name| (name, std::env::var_os(name).unwrap_or_default())));
        command.envs(self.variables.iter().map(|name| (*name, self.program.variable(name))));
        // Scripts that share a module leave nothing beside it.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("NO_PROXY", "127.0.0.1,localhost").current_dir(folder).kill_on_drop(true);
        if let Some(hosts) = &self.hosts {
            fs::write(hosts, "127.0.0.1 localhost api.e2b.localhost\n").expect("a file");
            command.env("HOSTS", "/etc/hosts");
        }
        let ended = timeout(LIMIT, command.args(&line[1..]).output()).await.expect("an end in time");
        let output = ended.unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line:?} {}: {said}{wrong}", output.status);
        said.into_owned()
    }
}

/// What both languages' script of this name, with these arguments, says in all generations and runs: the same.
pub(crate) async fn said_by_all(script: &str, arguments: &[&str], runs: &[Run<'_>]) -> String {
    let path = |end: &str| format!("{ROOT}/tests/sdks/{script}.{end}");
    let (python, javascript) = (path("py"), path("mjs"));
    let sdks = [Installed::get(&NEWEST).await, Installed::get(&OLD).await];
    let mut said = Vec::new();
    for sdk in &sdks {
        let program = sdk.python.to_str().expect("text");
        let both = runs.iter().map(async |run| {
            let python = run.says(&sdk.modules, &[&[program, &python], arguments].concat()).await;
            [python, run.says(&sdk.modules, &[&["node", &javascript], arguments].concat()).await]
        });
        said.extend(join_all(both).await.into_iter().flatten());
    }
    for other in &said {
        assert_eq!(*other, said[0], "of {} runs", said.len());
    }
    said.swap_remove(0)
}
