//! `config/edge.toml`, the example of a plain edge and the image's configuration, is sound as it stands.

use std::{collections::BTreeSet, process::Command};

use client_proxy::config::{Catalog, Config, Environment, Resumer};

pub(crate) const FILE: &str = include_str!("../../config/edge.toml");

/// What its head tells to set.
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("E2B_DOMAIN", "sandbox.example.com"),
    ("E2B_API_URL", "http://api.internal:3000"),
    ("E2B_API_KEY", "s3cret-1"),
    ("ADMIN_TOKEN", "s3cret-2"),
];

#[test]
fn check_has_nothing_to_say_of_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/edge.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_client-proxy"));
    let output = command.env_clear().envs(VARIABLES).args(["check", "--config", path]).output().expect("starts");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("s3cret"));
}

#[test]
fn it_finds_and_wakes_by_the_api_with_the_variables_that_its_head_names() {
    let loaded = Config::load(FILE.as_bytes(), &VARIABLES.iter().copied().collect::<Environment>());
    let Config { server, admin, catalog, resume, .. } = loaded.unwrap_or_else(|faults| panic!("{faults}")).config;
    assert_eq!(server.domains, ["sandbox.example.com"]);
    assert_eq!(admin.token.expect("a token").expose(), b"s3cret-2");
    let (Catalog::Rest(catalog), Resumer::Rest(resume)) = (catalog, resume.resumer) else { panic!("not by the API") };
    for (url, key) in [(catalog.url, catalog.api_key), (resume.url, resume.api_key)] {
        assert_eq!((url.as_str(), key.expose()), ("http://api.internal:3000/", &b"s3cret-1"[..]));
    }
    let head = FILE.split("\n\n").next().expect("a head");
    let told: BTreeSet<&str> =
        head.lines().filter_map(|line| line.strip_prefix("#   ")?.split_whitespace().next()).collect();
    assert_eq!(told, VARIABLES.iter().map(|(name, _)| *name).collect());
}

#[test]
fn the_readme_gives_the_image_the_grace_that_it_needs() {
    let loaded = Config::load(FILE.as_bytes(), &VARIABLES.iter().copied().collect::<Environment>());
    let seconds = loaded.unwrap_or_else(|faults| panic!("{faults}")).config.grace().as_secs();
    let readme = include_str!("../../README.md");
    let (_, told) =
        readme.split_once("docker run -p").and_then(|(_, run)| run.split_once("--stop-timeout ")).expect("told");
    assert_eq!(told.split_whitespace().next(), Some(seconds.to_string().as_str()));
}

#[test]
fn each_variable_is_needed_and_its_lack_is_told() {
    for (missing, _) in VARIABLES {
        let env: Environment = VARIABLES.iter().copied().filter(|(name, _)| *name != missing).collect();
        let faults = Config::load(FILE.as_bytes(), &env).expect_err(missing);
        assert!(faults.0.iter().all(|fault| fault.to_string().contains(missing)), "{missing}: {faults}");
    }
}
