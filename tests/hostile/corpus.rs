//! The seeds of the fuzz targets and what these have found, played through the same checks.

#![allow(unreachable_pub, reason = "the files are those of another crate")]

#[path = "../../fuzz/src/front.rs"]
mod front;
#[path = "../../fuzz/src/host.rs"]
mod host;
#[path = "../../fuzz/src/introduction.rs"]
mod introduction;
#[path = "../../fuzz/src/reading.rs"]
pub(crate) mod reading;

/// Every file of a target's corpus.
fn play(target: &str, check: impl Fn(&[u8])) {
    let folder = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut played = 0;
    for file in std::fs::read_dir(&folder).expect("a corpus") {
        let path = file.expect("a file").path();
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("a file that can be read"));
        played += 1;
    }
    assert!(played >= 10, "{played} inputs for {target}");
}

#[test]
fn every_input_for_the_front_keeps_what_must_hold() {
    play("front", front::check);
}

#[test]
fn every_input_for_the_host_keeps_what_must_hold() {
    play("host", host::check);
}

#[test]
fn every_input_for_the_introduction_keeps_what_must_hold() {
    play("introduction", introduction::check);
}
