//! What users do in sandboxes that sleep in between, by the SDKs of both generations, in the clear and over TLS:
//! commands, terminals, watched folders, ports of their own, large files, signed URLs, and code in kernels.

use std::fs;

use tempfile::TempDir;

use crate::{
    installed::{Installed, KERNEL, NEWEST},
    playground_support::program::Program,
    run::{OVER_TLS, PLAIN, ROOT, Run, said_by_all},
};

/// A playground with a domain, and a folder of the test's own.
struct Place {
    program: Program,
    folder: TempDir,
}

impl Place {
    async fn with(arguments: &[&str]) -> Self {
        let program = Program::start(&[&["--tls", "127.0.0.1:0"], arguments].concat()).await;
        Self { program, folder: TempDir::new().expect("a folder") }
    }

    fn plain(&self) -> Run<'_> {
        Run { program: &self.program, variables: &PLAIN, hosts: None }
    }

    fn over_tls(&self) -> Run<'_> {
        let hosts = Some(self.folder.path().join("hosts"));
        Run { program: &self.program, variables: &OVER_TLS, hosts }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_terminals_and_ports_carry_on_where_they_were() {
    let place = Place::with(&[]).await;
    let works = ["commands", "cut", "crowd", "port", "terminal", "watch", "stream"];
    let said = said_by_all("work", &works, &[place.plain(), place.over_tls()]).await;
    assert_eq!(said, include_str!("work.txt"));
    place.program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_go_up_and_down_where_nothing_runs() {
    let place = Place::with(&[]).await;
    let said = said_by_all("work", &["large"], &[place.plain(), place.over_tls()]).await;
    assert_eq!(said, "up 104857600 1\ndown true 2\n");
    place.program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_urls_work_under_the_domain_and_wake_nothing() {
    let place = Place::with(&[]).await;
    let said = said_by_all("work", &["signed"], &[place.over_tls()]).await;
    assert_eq!(said, "up 200 signed\ndown 200 signed\nforged 401\nasleep 403 403 paused 0\nkept signed 200\n");
    place.program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_remembers_across_a_pause_whoever_runs_it() {
    let python = Installed::get(&KERNEL).await.python;
    let place = Place::with(&["--python", python.to_str().expect("text")]).await;
    let said = said_by_all("work", &["code"], &[place.plain(), place.over_tls()]).await;
    assert_eq!(said, "x 2 1\ncut error: not running paused 1\non 3 2\nerror ZeroDivisionError out\n");

    let sdk = Installed::get(&NEWEST).await;
    // Where Node finds the modules.
    let folder = TempDir::new_in(&sdk.modules).expect("a folder");
    for (end, program) in [("py", sdk.python.to_str().expect("text")), ("mts", "node_modules/.bin/tsx")] {
        let file = folder.path().join(format!("example.{end}"));
        fs::copy(format!("{ROOT}/examples/run_code.{end}"), &file).expect("a file");
        let said = place.plain().says(&sdk.modules, &[program, file.to_str().expect("text")]).await;
        assert_eq!(said, "x is 1\nand now 2\n", "{end}");
    }
    place.program.end().await;
}
