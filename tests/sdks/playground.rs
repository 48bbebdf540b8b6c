//! The SDKs of both generations with the playground, as its users start it: in the clear, and over TLS under one
//! domain; the examples, and what README says.

use std::fs;

use tempfile::TempDir;

use crate::{
    installed::{Installed, NEWEST},
    playground_support::program::Program,
    run::{OVER_TLS, PLAIN, ROOT, Run, said_by_all},
};

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_are_as_documented_in_the_clear_and_over_tls() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let place = TempDir::new().expect("a folder");
    let plain = Run { program: &program, variables: &PLAIN, hosts: None };
    let over_tls = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    assert_eq!(said_by_all("walk", &["life"], &[plain, over_tls]).await, include_str!("walk.txt"));
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_platform_refuses_is_told_as_what_it_is() {
    for (walk, options, expected) in [
        ("deny", &["--deny"][..], "denied error: sandbox paused\nwhy true\nconnect kept\n"),
        (
            "limit",
            &["--team-limit", "1"],
            "create error: rate limit\nwake error: rate limit error: rate limit\nconnect running\n",
        ),
        ("retention", &["--retention", "1s"], "expired error: not running error: not found\nwhy true\nconnect true\n"),
    ] {
        let program = Program::start(options).await;
        let run = Run { program: &program, variables: &PLAIN, hosts: None };
        assert_eq!(said_by_all("walk", &[walk], &[run]).await, expected);
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
