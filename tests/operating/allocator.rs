//! The allocator's options are set where the program is built, and nothing fails where they are missing.

use std::process::Command;

#[test]
fn the_allocator_was_built_with_its_options_and_takes_them() {
    let file: toml::Table = include_str!("../../.cargo/config.toml").parse().expect("TOML");
    let options = file["env"]["JEMALLOC_SYS_WITH_MALLOC_CONF"].as_str().expect("options");
    let mut program = Command::new(env!("CARGO_BIN_EXE_client-proxy"));
    let output = program.arg("--version").env_clear().env("_RJEM_MALLOC_CONF", "stats_print:true").output();
    let told = String::from_utf8(output.expect("the program").stderr).expect("text");
    assert!(told.contains(&format!("config.malloc_conf: \"{options}\"")), "{told}");
    assert!(!told.contains("<jemalloc>: "), "an option that it does not take: {told}");
}
