//! The floor plan, enforced: imports in `src/` only go down, never sideways, and no file, be it a test or a
//! benchmark, outgrows a screenful of thought. A room is a top-level module; what it may name stands in
//! [`may_name`], and nowhere else. No line is wider than a screen.

#[path = "support/rust_paths.rs"]
mod rust_paths;

use std::{
    fs,
    path::{Path, PathBuf},
};

use rust_paths::crate_paths;

const MAX_LINES: usize = 400;
const MAX_WIDTH: usize = 120;

/// What a room may name of the other rooms: a room, or one module of it. `None`: the room is not on the
/// plan. Rooms of one floor do not see each other; only where two must meet does the upper one bring a port.
fn may_name(room: &str) -> Option<&'static [&'static str]> {
    Some(match room {
        // Floor 0
        "types" => &[],
        // Floor 1: no arrows between them either, not even to telemetry: what they know, they return.
        "config" | "route" | "shutdown" | "telemetry" => &["types"],
        // Floor 2
        "forward" | "sandbox" => &["config", "route", "shutdown", "telemetry", "types"],
        "control" => &["config", "route", "sandbox::ports", "shutdown", "telemetry", "types"],
        // Floor 3: none of them knows which control plane is at work.
        "dev" | "edge" | "request" => &["config", "forward", "route", "sandbox", "shutdown", "telemetry", "types"],
        // The roof: only here do concrete adapters have names.
        "app" => &[
            "config",
            "control",
            "dev",
            "edge",
            "forward",
            "request",
            "route",
            "sandbox",
            "shutdown",
            "telemetry",
            "types",
        ],
        "cli" | "main" => &["app", "cli", "config", "dev"],
        // The tour re-exports what the public may name.
        "lib" => &["app", "config"],
        _ => return None,
    })
}

/// Every path of `source` that the plan forbids to the file `file`, which is relative to `src/`.
fn violations(file: &Path, source: &str) -> Vec<String> {
    let module = module_of(file);
    // main.rs and lib.rs are roots, not rooms: a path of one segment names them.
    let room = module.first().map_or_else(|| stem(file), String::as_str);
    let Some(allowed) = may_name(room) else {
        return vec![format!("{}: {room} is not on the plan", file.display())];
    };
    let forbidden = |path: &&(usize, Vec<String>)| {
        let path = &path.1;
        // A module inside a root sees the root; everywhere else `*` is the whole house.
        let whole = path.len() == 1 && path[0] == "*";
        let own = if whole { module.is_empty() } else { path[0] == room };
        let named = |allowed: &&str| {
            let mut parts = path.iter();
            allowed.split("::").all(|part| parts.next().is_some_and(|segment| segment == part))
        };
        !own && !allowed.iter().any(named)
    };
    crate_paths(source, &module)
        .iter()
        .filter(forbidden)
        .map(|(line, path)| format!("{}:{line}: {room} names {}", file.display(), path.join("::")))
        .collect()
}

fn stem(file: &Path) -> &str {
    file.file_stem().and_then(|stem| stem.to_str()).expect("a file name")
}

/// `sandbox/ports.rs` and `sandbox/ports/mod.rs` are `sandbox::ports`; the roots have no name.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_str().expect("a UTF-8 name").to_owned()).collect();
    let roots = module.len() == 1 && ["lib", "main"].contains(&module[0].as_str());
    if roots || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every source file below this folder of the package: its path from there, and its text.
fn all_sources(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    sources(&folder, &mut found);
    assert!(!found.is_empty(), "no sources in {}", folder.display());
    let read = |path: PathBuf| {
        let source = fs::read_to_string(&path).expect("a readable file");
        (path.strip_prefix(&folder).expect("below the folder").to_owned(), source)
    };
    found.into_iter().map(read).collect()
}

#[test]
fn imports_only_go_down() {
    let found: Vec<_> = all_sources("src").iter().flat_map(|(file, source)| violations(file, source)).collect();
    assert!(found.is_empty(), "against the floor plan:\n{}", found.join("\n"));
}

/// Every source file of the package: its path, and its text.
fn house() -> impl Iterator<Item = (String, String)> {
    ["src", "tests", "benches"].into_iter().flat_map(|folder| {
        all_sources(folder).into_iter().map(move |(file, source)| (format!("{folder}/{}", file.display()), source))
    })
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> =
        house().map(|(file, source)| (source.lines().count(), file)).filter(|(lines, _)| *lines > MAX_LINES).collect();
    assert!(long.is_empty(), "over {MAX_LINES} lines: {long:?}");
}

/// Whether the line is too wide, and could be broken: a text in quotes and an address cannot.
fn is_too_wide(line: &str) -> bool {
    let line = line.trim_end();
    let is_comment = line.trim_start().starts_with("//");
    line.chars().count() > MAX_WIDTH && !line.contains("://") && (is_comment || !line.contains('"'))
}

#[test]
fn no_line_is_too_wide() {
    let wide = |(file, source): (String, String)| {
        let lines = source.lines().enumerate().filter(|(_, line)| is_too_wide(line));
        lines.map(|(at, _)| format!("{file}:{}", at + 1)).collect::<Vec<_>>()
    };
    let wide: Vec<_> = house().flat_map(wide).collect();
    assert!(wide.is_empty(), "over {MAX_WIDTH} columns: {wide:?}");
}

#[test]
fn planted_width_is_found() {
    let x = "x ".repeat(MAX_WIDTH / 2);
    for (line, wide) in [
        (x.clone(), false),
        (format!("{x}y"), true),
        (format!("/// \"{x}\""), true),
        (format!("/// http://{x}"), false),
        (format!("let a = \"{x}\";"), false),
        ("ü".repeat(MAX_WIDTH), false),
    ] {
        assert_eq!(is_too_wide(&line), wide, "{line}");
    }
}

/// A file, what stands in it, and what is to be said of it.
const PLANTED: &[(&str, &str, &str)] = &[
    ("route.rs", "use crate::config::Config;", "1: route names config::Config"),
    ("types.rs", "use crate::{route};", "1: types names route"),
    ("forward/pool.rs", "\n\nuse crate::sandbox::ports::Wake;", "3: forward names sandbox::ports::Wake"),
    (
        "control/rest/mod.rs",
        "use crate::{config, sandbox::{ports::{Wake, Sleep}, table::Table}};",
        "1: control names sandbox::table::Table",
    ),
    ("control/mod.rs", "use crate::sandbox;", "1: control names sandbox"),
    ("control/mod.rs", "use crate::sandbox::*;", "1: control names sandbox::*"),
    ("sandbox/table.rs", "pub(in crate::request) fn f() {}", "1: sandbox names request"),
    ("edge/conn.rs", "fn f() { let x = crate::request::handle(1); }", "1: edge names request::handle"),
    ("edge/conn.rs", "fn f(x: &'a crate :: dev ::X<'_>) {}", "1: edge names dev::X"),
    ("dev/mod.rs", "fn f() { crate::control::rest::X::<u8>::new() }", "1: dev names control::rest::X"),
    ("config/raw.rs", "use super::super::telemetry::x;", "1: config names telemetry::x"),
    ("config/mod.rs", "use super::{types, app::run as go};", "1: config names app::run"),
    ("config/mod.rs", "mod tests { mod deep { use super::super::super::dev; } }", "1: config names dev"),
    ("config/mod.rs", "mod a { fn f() { if x {} } use super::super::dev; }", "1: config names dev"),
    ("shutdown.rs", "macro_rules! m { () => { $crate::edge::x() } }", "1: shutdown names edge::x"),
    ("telemetry/mod.rs", "use crate::*;", "1: telemetry names *"),
    ("telemetry/mod.rs", "use {std::fmt, crate::{self as root}};", "1: telemetry names self"),
    ("telemetry/mod.rs", "use crate as root;", "1: telemetry names *"),
    ("telemetry/mod.rs", "extern crate self as root;", "1: telemetry names *"),
    ("telemetry.rs", "use super::*;", "1: telemetry names *"),
    ("request/handle.rs", "use crate::r#control::X;", "1: request names control::X"),
    ("request/handle.rs", "/* /* */ \" */ use crate::control::X;", "1: request names control::X"),
    ("request/handle.rs", "const C: char = '\"'; use crate::edge::X; // \"", "1: request names edge::X"),
    ("main.rs", "use client_proxy::{app, sandbox::X};", "1: main names sandbox::X"),
    ("main.rs", "fn main() { ::client_proxy::control::x() }", "1: main names control::x"),
    ("attic/mod.rs", "", " attic is not on the plan"),
];

#[test]
fn planted_violations_are_found() {
    for (file, source, want) in PLANTED {
        let want = format!("{file}:{want}");
        assert_eq!(violations(Path::new(file), source), [want], "{source}");
    }
}

/// A file and what may stand in it.
const ALLOWED: &[(&str, &str)] = &[
    ("control/rest/mod.rs", "use crate::{config, sandbox::ports::{self, Wake}, types::Port};"),
    ("control/rest/mod.rs", "use crate::sandbox::ports;\nuse super::fixed;"),
    ("request/handle.rs", "use crate::{route::*, request::failure, sandbox::table::Table};"),
    ("app.rs", "use crate::{control::AnyCatalog, edge, request};"),
    ("main.rs", "mod tests { use super::*; }"),
    ("main.rs", "use client_proxy::app; mod cli; fn f() { crate::cli::run() }"),
    ("route.rs", "mod tests { use super::*; mod deep { use super::super::*; } }"),
    ("route/tests.rs", "use super::*; use crate::types::Port;"),
    ("types.rs", "// use crate::app;\n/* crate::app /* crate::app */ crate::app */ /// [`crate::app`]"),
    ("types.rs", r##"const A: &str = "\" crate::app"; const B: &[u8] = br#"" crate::app"#;"##),
    ("types.rs", "fn f<'a>(x: &'a str) -> char { '\\'' } // '\ncrate::types::g();"),
    ("types.rs", "pub(crate) struct A; pub(super) struct B; pub(in crate::types) struct C;"),
    ("types.rs", "use std::crates; use other::client_proxy_x::app;"),
];

#[test]
fn what_the_plan_allows_is_left_alone() {
    for (file, source) in ALLOWED {
        let found = violations(Path::new(file), source);
        assert!(found.is_empty(), "{source}: {found:?}");
    }
}
