//! What users do in sandboxes that sleep in between, by the SDKs of both generations: commands, terminals, watched
//! folders, ports of their own, large files, signed URLs, and code in kernels.

use std::fs;

use tempfile::TempDir;

use crate::{
    installed::{Installed, NEWEST},
    kernel,
    playground_support::program::Program,
    run::{OVER_TLS, PLAIN, ROOT, Run, said_by_all},
};

const TLS: [&str; 2] = ["--tls", "127.0.0.1:0"];

#[tokio::test(flavor = "multi_thread")]
async fn commands_terminals_and_ports_carry_on_in_the_clear_and_over_tls() {
    let program = Program::start(&TLS).await;
    let place = TempDir::new().expect("a folder");
    let plain = Run { program: &program, variables: &PLAIN, hosts: None };
    let over_tls = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    let works = ["commands", "cut", "crowd", "port", "terminal", "watch"];
    assert_eq!(said_by_all("work", &works, &[plain, over_tls]).await, include_str!("work.txt"));
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_go_up_and_down_where_nothing_runs() {
    let program = Program::start(&[]).await;
    let run = Run { program: &program, variables: &PLAIN, hosts: None };
    assert_eq!(said_by_all("work", &["large"], &[run]).await, "up 104857600 1\ndown true 2\n");
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_urls_work_under_the_domain_and_wake_nothing() {
    let program = Program::start(&TLS).await;
    let place = TempDir::new().expect("a folder");
    let run = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    let expected = "up 200 signed\ndown 200 signed\nforged 401\nasleep 403 403 paused 0\nkept signed 200\n";
    assert_eq!(said_by_all("work", &["signed"], &[run]).await, expected);
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_remembers_across_a_pause_whoever_runs_it() {
    let python = kernel::python().await;
    let python = python.to_str().expect("text");
    let program = Program::start(&["--python", python]).await;
    let run = Run { program: &program, variables: &PLAIN, hosts: None };
    let sdk = Installed::get(&NEWEST).await;
    let place = TempDir::new_in(&sdk.modules).expect("a folder");
    for (end, program) in [("py", sdk.python.to_str().expect("text")), ("mts", "node_modules/.bin/tsx")] {
        let file = place.path().join(format!("example.{end}"));
        fs::copy(format!("{ROOT}/examples/run_code.{end}"), &file).expect("a file");
        assert_eq!(
            run.says(&sdk.modules, &[program, file.to_str().expect("text")]).await,
            "x is 1\nand now 2\n",
            "{end}"
        );
    }
    assert_eq!(said_by_all("work", &["code"], &[run]).await, "x 2 1\nerror ZeroDivisionError out\n");
    program.end().await;
}
