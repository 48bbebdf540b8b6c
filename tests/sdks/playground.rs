//! The SDKs of both generations with the playground, as its users start it: in the clear, and over TLS under one
//! domain; the examples, and what README says.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use crate::{
    installed::{Installed, NEWEST, OLD},
    playground_support::program::Program,
};

const LIMIT: Duration = Duration::from_mins(2);
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What users export.
const PLAIN: [&str; 3] = ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"];
const OVER_TLS: [&str; 4] = ["E2B_API_KEY", "E2B_DOMAIN", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"];

/// A program that runs in one of these environments.
struct Run<'a> {
    program: &'a Program,
    variables: &'a [&'static str],
    /// What the resolver reads instead of /etc/hosts.
    hosts: Option<PathBuf>,
}

impl Run<'_> {
    /// Its standard output; fails where it fails.
    async fn says(&self, folder: &Path, line: &[&str]) -> String {
        let mut command = match &self.hosts {
            None => Command::new(line[0]),
            Some(hosts) => {
                // A mount of its own, in a namespace of its own: the machine's file is as it was.
                let mut command = Command::new("unshare");
                command.args([
                    "--map-root-user",
                    "--mount",
                    "sh",
                    "-c",
                    r#"mount --bind "$0" /etc/hosts && exec "$@""#,
                ]);
                command.arg(hosts).arg(line[0]).env("HOSTS", "/etc/hosts");
                command
            }
        };
        command.env_clear().envs(["PATH", "HOME"].map(|name| (name, std::env::var_os(name).unwrap_or_default())));
        command.envs(self.variables.iter().map(|name| (*name, self.program.variable(name))));
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

/// Both languages' walk of this name by both generations, which must all say the same.
async fn walked(walk: &str, runs: &[Run<'_>]) -> String {
    let script = |end: &str| format!("{ROOT}/tests/sdks/walk.{end}");
    let (python, javascript) = (script("py"), script("mjs"));
    let sdks = [Installed::get(&NEWEST).await, Installed::get(&OLD).await];
    let mut said = Vec::new();
    for sdk in &sdks {
        let program = sdk.python.to_str().expect("text");
        let both = runs.iter().map(async |run| {
            let python = run.says(&sdk.modules, &[program, &python, walk]).await;
            [python, run.says(&sdk.modules, &["node", &javascript, walk]).await]
        });
        said.extend(join_all(both).await.into_iter().flatten());
    }
    for other in &said {
        assert_eq!(*other, said[0], "of {} runs", said.len());
    }
    said.swap_remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_are_as_documented_in_the_clear_and_over_tls() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let place = TempDir::new().expect("a folder");
    let plain = Run { program: &program, variables: &PLAIN, hosts: None };
    let over_tls = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    assert_eq!(walked("life", &[plain, over_tls]).await, include_str!("walk.txt"));
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_platform_refuses_is_told_as_what_it_is() {
    for (walk, options, expected) in [
        ("deny", &["--deny"][..], "denied error: sandbox paused\nconnect kept\n"),
        (
            "limit",
            &["--team-limit", "1"],
            "create error: rate limit\nwake error: rate limit error: rate limit\nconnect running\n",
        ),
        ("retention", &["--retention", "1s"], "expired error: not running error: not found\n"),
    ] {
        let program = Program::start(options).await;
        let run = Run { program: &program, variables: &PLAIN, hosts: None };
        assert_eq!(walked(walk, &[run]).await, expected);
        program.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_and_readme_run_as_they_are() {
    let program = Program::start(&[]).await;
    let run = Run { program: &program, variables: &PLAIN, hosts: None };
    let sdk = Installed::get(&NEWEST).await;
    let (python, place) = (sdk.python.to_str().expect("text"), TempDir::new_in(&sdk.modules).expect("a folder"));
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).expect("README.md");
    let example =
        |end: &str| fs::read_to_string(format!("{ROOT}/examples/pause_and_resume.{end}")).expect("an example");
    let last = |said: String| said.lines().last().unwrap_or_default().to_owned();
    let tsx = "node_modules/.bin/tsx";
    for (text, program, name, expected) in [
        (example("py"), python, "example.py", "and is gone"),
        (example("mts"), tsx, "example.mts", "and is gone"),
        (block(&readme, "python"), python, "readme.py", "remember me"),
        (block(&readme, "ts"), tsx, "readme.mts", "remember me"),
    ] {
        let file = place.path().join(name);
        fs::write(&file, text).expect("a file");
        let said = run.says(&sdk.modules, &[program, file.to_str().expect("text")]).await;
        assert_eq!(last(said), expected, "{name}");
    }
    program.end().await;
}

/// The text of the one block in this language.
fn block(text: &str, language: &str) -> String {
    let begin = format!("```{language}\n");
    let mut blocks = text.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let block = blocks.next().unwrap_or_else(|| panic!("no {begin}")).to_owned();
    assert_eq!(blocks.next(), None, "more than one");
    block
}
