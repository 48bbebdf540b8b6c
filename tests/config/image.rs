//! The Dockerfile says once more what stands elsewhere: ports, versions, names. Here it is held to that.

use std::{collections::BTreeSet, path::Path, process::Command};

use client_proxy::config::{Config, Environment};

const DOCKERFILE: &str = include_str!("../../Dockerfile");
const DOCKERIGNORE: &str = include_str!("../../.dockerignore");
const MANIFEST: &str = include_str!("../../Cargo.toml");
const TOOLCHAIN: &str = include_str!("../../rust-toolchain.toml");

/// Debian's release, as the tags of Rust and Debian name it and as distroless does.
const DEBIAN: (&str, &str) = ("trixie", "debian13");

/// An instruction of a stage: its word, and the rest on one line.
struct Instruction {
    word: String,
    rest: String,
}

struct Stage {
    base: String,
    name: String,
    instructions: Vec<Instruction>,
}

impl Stage {
    fn all<'s>(&'s self, word: &'s str) -> impl Iterator<Item = &'s str> {
        self.instructions.iter().filter(move |one| one.word == word).map(|one| one.rest.as_str())
    }

    fn only<'s>(&'s self, word: &'s str) -> &'s str {
        let found: Vec<_> = self.all(word).collect();
        assert_eq!(found.len(), 1, "{word} in {}: {found:?}", self.name);
        found[0]
    }

    /// Files copied from the build context: sources and destination.
    fn copied(&self) -> impl Iterator<Item = (Vec<&str>, &str)> {
        self.all("COPY").filter(|rest| !rest.starts_with("--from=")).map(|rest| {
            let mut words: Vec<_> = rest.split_whitespace().collect();
            let destination = words.pop().expect("a destination");
            (words, destination)
        })
    }

    fn builds(&self) -> Vec<&str> {
        let commands = self.all("RUN").flat_map(|rest| rest.split("&&")).map(str::trim);
        commands.filter(|command| command.starts_with("cargo build")).collect()
    }
}

fn stages() -> Vec<Stage> {
    let lines: Vec<_> = DOCKERFILE.lines().filter(|line| !line.starts_with('#')).collect();
    let mut stages: Vec<Stage> = Vec::new();
    for line in lines.join("\n").replace("\\\n", " ").lines().filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').expect("a word and the rest");
        if word == "FROM" {
            let (base, name) = rest.split_once(" AS ").expect("every stage has a name");
            stages.push(Stage { base: base.to_owned(), name: name.to_owned(), instructions: Vec::new() });
        } else {
            let stage = stages.last_mut().expect("FROM comes first");
            stage.instructions.push(Instruction { word: word.to_owned(), rest: rest.trim().to_owned() });
        }
    }
    stages
}

fn stage(name: &str) -> Stage {
    stages().into_iter().find(|stage| stage.name == name).unwrap_or_else(|| panic!("a stage {name}"))
}

/// The exec form: a JSON array. Any other would need a shell.
fn exec(words: &str) -> Vec<String> {
    serde_json::from_str(words).unwrap_or_else(|error| panic!("{words} is no exec form: {error}"))
}

fn toml(text: &str) -> toml::Table {
    text.parse().expect("TOML")
}

#[test]
fn the_edge_is_what_is_built_unasked_and_every_base_is_pinned() {
    let stages = stages();
    let names: Vec<_> = stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names.last(), Some(&"edge"));
    assert!(names.contains(&"dev"));
    let toolchain = toml(TOOLCHAIN)["toolchain"]["channel"].as_str().expect("a channel").to_owned();
    let bases: Vec<_> = stages.iter().map(|stage| stage.base.as_str()).filter(|base| !names.contains(base)).collect();
    let (code, number) = DEBIAN;
    let rust = format!("rust:{toolchain}-{code}");
    // One Debian: the program meets the C library that it was linked with.
    assert_eq!(bases, [rust, format!("debian:{code}-slim"), format!("gcr.io/distroless/cc-{number}:nonroot")]);
}

#[test]
fn the_edge_is_built_without_the_playground_and_dev_with_it() {
    let manifest = toml(MANIFEST);
    assert!(manifest["profile"].get("dist").is_some());
    assert_eq!(manifest["features"]["default"].as_array().map(Vec::len), Some(1), "one feature: dev");
    for (name, want) in [
        ("build-edge", "cargo build --locked --offline --profile dist --no-default-features"),
        ("build-dev", "cargo build --locked --offline --release"),
    ] {
        // Dependencies ahead, then the program: the same words, or the first would build for nothing.
        assert_eq!(stage(name).builds(), [want; 2]);
    }
    for (name, from) in [
        ("edge", "--from=build-edge /build/target/dist/client-proxy"),
        ("dev", "--from=build-dev /build/target/release/client-proxy"),
    ] {
        let stage = stage(name);
        let program = exec(stage.only("ENTRYPOINT")).remove(0);
        assert!(stage.all("COPY").any(|rest| rest == format!("{from} {program}")), "{name}");
    }
    assert_eq!(exec(stage("dev").only("ENTRYPOINT"))[1..], ["dev"]);
}

#[test]
fn all_that_is_copied_is_there_and_let_through() {
    assert_eq!(DOCKERIGNORE.lines().find(|line| !line.starts_with('#')), Some("*"));
    let allowed: BTreeSet<&str> = DOCKERIGNORE.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let stages = stages();
    let copied: BTreeSet<&str> = stages.iter().flat_map(Stage::copied).flat_map(|(sources, _)| sources).collect();
    assert_eq!(copied, allowed);
    for source in copied {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(source).exists(), "{source}");
    }
}

#[test]
fn every_bench_has_its_stand_in() {
    let manifest = toml(MANIFEST);
    let benches: BTreeSet<String> = manifest["bench"]
        .as_array()
        .expect("benches")
        .iter()
        .map(|bench| format!("benches/{}.rs", bench["name"].as_str().expect("a name")))
        .collect();
    let source = stage("source");
    let touched = source.only("RUN").split_whitespace().filter(|word| word.starts_with("benches/"));
    assert_eq!(touched.map(str::to_owned).collect::<BTreeSet<_>>(), benches);
}

#[test]
fn nobody_is_root_and_the_edge_needs_no_shell() {
    for name in ["edge", "dev"] {
        let stage = stage(name);
        let ids: Vec<u32> = stage.only("USER").split(':').map(|id| id.parse().expect("a number")).collect();
        assert!(ids.len() == 2 && ids.iter().all(|id| *id != 0), "{name}: {ids:?}");
        assert_eq!(stage.only("STOPSIGNAL"), "SIGTERM");
    }
    assert_eq!(stage("edge").all("RUN").count(), 0);
}

#[test]
fn ports_and_the_health_check_are_those_of_the_configuration() {
    let edge = stage("edge");
    let exposed: Vec<u16> = edge.only("EXPOSE").split_whitespace().map(|port| port.parse().expect("a port")).collect();
    let variables = super::edge::VARIABLES.iter().copied().collect::<Environment>();
    for file in ["", super::edge::FILE] {
        let config = Config::load(file.as_bytes(), &variables).unwrap_or_else(|faults| panic!("{faults}")).config;
        let admin = config.admin.listen.expect("on");
        let ports: Vec<_> = config.server.listen.iter().chain([&config.health.listen, &admin]).collect();
        assert_eq!(ports.iter().map(|address| address.port()).collect::<Vec<_>>(), exposed);
    }
    let program = exec(edge.only("ENTRYPOINT")).remove(0);
    let (options, command) = edge.only("HEALTHCHECK").split_once(" CMD ").expect("a command");
    assert_eq!(exec(command), [&program, "health"]);
    // The command gives up by itself before Docker does.
    assert!(options.contains("--timeout=6s"), "{options}");
    let help = Command::new(env!("CARGO_BIN_EXE_client-proxy")).args(["health", "--help"]).output().expect("starts");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    assert!(help.contains("within 5 seconds") && help.contains(&format!("http://127.0.0.1:{}/health", exposed[1])));
}

#[test]
fn it_starts_with_the_file_that_was_put_there() {
    let edge = stage("edge");
    let (_, path) = edge.copied().find(|(sources, _)| sources == &["config/edge.toml"]).expect("a configuration");
    assert_eq!(exec(edge.only("CMD")), ["--config", path]);
    let build = stage("build-edge");
    let check = build.all("RUN").last().expect("the program is tried");
    for (name, _) in super::edge::VARIABLES {
        assert!(check.contains(&format!(" {name}=")), "{name}: {check}");
    }
}

#[test]
fn labels_are_those_of_the_package() {
    let edge = stage("edge");
    for (label, value) in [
        ("title", env!("CARGO_PKG_NAME")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("version", env!("CARGO_PKG_VERSION")),
    ] {
        let label = format!("org.opencontainers.image.{label}=\"{value}\"");
        assert!(edge.only("LABEL").contains(&label), "{label}");
    }
    assert!(stage("dev").only("LABEL").contains(env!("CARGO_PKG_VERSION")));
}
