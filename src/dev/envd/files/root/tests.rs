use std::{fs, io::Write as _, os::unix::fs::symlink};

use super::*;
use crate::dev::envd::rpc::Code;

fn ground() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Root::new(folder.path()).expect("a root");
    (folder, root)
}

fn place(root: &Root, path: &str) -> Place {
    root.place(path, None).expect("a place")
}

#[test]
fn links_are_resolved_as_if_the_folder_were_the_root() {
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("secret"), "x").expect("written");
    let (folder, root) = ground();
    symlink(outside.path(), folder.path().join("absolute")).expect("a link");
    symlink("../../../../../..", folder.path().join("up")).expect("a link");
    let name = outside.path().join("secret");
    let over_up = format!("/up{}", name.display());
    for path in ["/absolute/secret", over_up.as_str()] {
        let fault = root.open_to_read(&place(&root, path)).expect_err(path);
        assert_eq!(fault.code, Code::NotFound, "{path}");
    }
    let _ = root.open_to_write(&place(&root, "/absolute/new"));
    root.remove(&place(&root, "/absolute/secret")).expect("nothing to do");
    assert!(!outside.path().join("new").exists());
    assert!(name.exists());
    // A link is removed itself, and moved itself.
    root.rename(&place(&root, "/absolute"), &place(&root, "/b/moved")).expect("moved");
    root.remove(&place(&root, "/b/moved")).expect("removed");
    assert!(name.exists() && !folder.path().join("b/moved").exists());
}

#[test]
fn files_are_opened_with_their_directories_and_nothing_else_is() {
    let (folder, root) = ground();
    for text in ["a longer text", "short"] {
        let mut file = root.open_to_write(&place(&root, "/a/b/c.txt")).expect("opened");
        file.write_all(text.as_bytes()).expect("written");
    }
    let text = fs::read_to_string(folder.path().join("a/b/c.txt")).expect("read");
    assert_eq!(text, "shortger text");
    rustix::fs::mknodat(&root.descriptor, "pipe", FileType::Fifo, FILE, 0).expect("a pipe");
    for bad in ["/", "/a/b", "/a/b/c.txt/d", "/pipe"] {
        let fault = root.open_to_write(&place(&root, bad)).expect_err(bad);
        assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
    }
    for (bad, want) in [
        ("/a", Code::InvalidArgument),
        ("/pipe", Code::InvalidArgument),
        ("/a/b/c.txt/d", Code::NotFound),
        ("/missing", Code::NotFound),
    ] {
        let fault = root.open_to_read(&place(&root, bad)).expect_err(bad);
        assert_eq!(fault.code, want, "{bad}");
    }
}

#[test]
fn targets_are_told_from_the_root_on() {
    let (folder, root) = ground();
    fs::create_dir_all(folder.path().join("home/user/d")).expect("made");
    symlink("/home/user", folder.path().join("home/user/d/up")).expect("a link");
    symlink("nowhere", folder.path().join("lost")).expect("a link");
    assert_eq!(root.target(&place(&root, "/home/user/d/up/d")).to_string(), "/home/user/d");
    assert_eq!(root.target(&place(&root, "/lost")).to_string(), "/lost");
}

#[test]
fn nothing_moves_where_it_cannot_be() {
    let (folder, root) = ground();
    fs::create_dir_all(folder.path().join("full/in")).expect("made");
    fs::create_dir(folder.path().join("other")).expect("made");
    fs::write(folder.path().join("file"), "x").expect("written");
    for (from, to, want) in [
        ("/missing", "/new", Code::NotFound),
        ("/other", "/full", Code::AlreadyExists),
        ("/file", "/full", Code::InvalidArgument),
        ("/full", "/full/in/it", Code::InvalidArgument),
        ("/", "/new", Code::InvalidArgument),
        ("/file", "/", Code::InvalidArgument),
    ] {
        let fault = root.rename(&place(&root, from), &place(&root, to)).expect_err(from);
        assert_eq!(fault.code, want, "{from} {to}");
    }
    assert_eq!(root.remove(&place(&root, "/")).expect_err("the root").code, Code::InvalidArgument);
    root.remove(&place(&root, "/full")).expect("removed with all it holds");
    assert!(!folder.path().join("full").exists());
}
