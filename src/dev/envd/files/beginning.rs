//! Where a program can begin: in a directory of the sandbox's folder or, where programs see the machine's files, of
//! the machine. Everything here blocks.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt as _,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{FileType, readlinkat};

use super::{
    fault::Fault,
    place::Place,
    root::{Root, kind_of},
};
use crate::dev::agent::enter;

/// As the kernel's (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// What programs see under one name.
enum Seen {
    Directory,
    Link(PathBuf),
    Else,
}

const MISSING: &str = "does not exist";
const NO_DIRECTORY: &str = "is not a directory";

impl Root {
    /// A directory, as programs see it.
    pub(crate) fn beginning(&self, path: &str, user: Option<&str>) -> Result<Place, Fault> {
        let place = self.place(path, user)?;
        match self.walk(&place) {
            Ok(()) => Ok(place),
            Err(why) => Err(Fault::invalid(format!("cwd '{place}' {why}"))),
        }
    }

    /// Name by name: the kernel would look for all of it in the folder only. Fails where it leads to no directory.
    fn walk(&self, place: &Place) -> Result<(), &'static str> {
        let (mut at, mut links) = (PathBuf::new(), 0);
        // The next one last.
        let mut names: Vec<OsString> = place.names().rev().map(Into::into).collect();
        while let Some(name) = names.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(name);
            match self.see(&at).ok_or(MISSING)? {
                Seen::Directory => {}
                Seen::Else => return Err(NO_DIRECTORY),
                Seen::Link(_) if links == LINKS_MAX => return Err("leads through too many symbolic links"),
                Seen::Link(target) => {
                    links += 1;
                    at.pop();
                    if target.is_absolute() {
                        at.clear();
                    }
                    names.extend(target.components().rev().filter_map(|part| match part {
                        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
                        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
                    }));
                }
            }
        }
        Ok(())
    }

    /// Nothing above it is a link.
    fn see(&self, at: &Path) -> Option<Seen> {
        if enter::is_machines(at) {
            let path = Path::new("/").join(at);
            let kind = fs::symlink_metadata(&path).ok()?.file_type();
            return Some(if kind.is_symlink() {
                Seen::Link(fs::read_link(path).ok()?)
            } else if kind.is_dir() {
                Seen::Directory
            } else {
                Seen::Else
            });
        }
        let (handle, stat) = self.handle(&self.place("/", None).ok()?.join(at), false).ok()?;
        Some(match kind_of(&stat) {
            FileType::Symlink => {
                let target = readlinkat(&handle, "", Vec::new()).ok()?;
                Seen::Link(OsString::from_vec(target.into_bytes()).into())
            }
            FileType::Directory => Seen::Directory,
            _ => Seen::Else,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::dev::envd::rpc::Code;

    #[test]
    fn programs_begin_in_directories_that_they_see() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path()).expect("a root");
        fs::create_dir_all(folder.path().join("home/user/data")).expect("created");
        fs::create_dir_all(folder.path().join("etc/own")).expect("created");
        fs::write(folder.path().join("home/user/file"), "").expect("written");
        symlink("/home/user/data", folder.path().join("home/user/current")).expect("a link");
        for (target, name) in [("/", "top"), ("../../usr", "machines"), ("round", "round"), ("/home/nobody", "lost")] {
            symlink(target, folder.path().join("home/user").join(name)).expect("a link");
        }
        // `..` of a target leads up from where the link before it leads.
        for (target, name) in [("current/../../../etc", "through"), ("in/../x", "by"), ("in/../data", "astray")] {
            symlink(target, folder.path().join("home/user").join(name)).expect("a link");
        }
        fs::create_dir_all(folder.path().join("own/in")).expect("created");
        fs::create_dir(folder.path().join("own/x")).expect("created");
        symlink("/own/in", folder.path().join("home/user/in")).expect("a link");
        for (path, want) in [
            ("by", "/home/user/by"),
            ("through", "/home/user/through"),
            ("", "/home/user"),
            ("data", "/home/user/data"),
            ("~/data", "/home/user/data"),
            ("a/../data", "/home/user/data"),
            ("../user", "/home/user"),
            ("current", "/home/user/current"),
            ("top/home", "/home/user/top/home"),
            ("/", "/"),
            ("/../../home", "/home"),
            ("/usr/bin", "/usr/bin"),
            ("machines/bin", "/home/user/machines/bin"),
            ("top/usr/bin", "/home/user/top/usr/bin"),
        ] {
            let place = root.beginning(path, None).unwrap_or_else(|fault| panic!("{path}: {fault:?}"));
            assert_eq!(place.to_string(), want, "{path}");
        }
        // What is in the folder under the machine's own names, programs do not see.
        for (bad, why) in [
            ("/nope", MISSING),
            ("file", NO_DIRECTORY),
            ("file/in", NO_DIRECTORY),
            ("machines/bin/env", NO_DIRECTORY),
            ("top/nope", MISSING),
            ("/etc/own", MISSING),
            ("/tmp", MISSING),
            ("current/nope", MISSING),
            ("round", "symbolic links"),
            ("lost", MISSING),
            ("machines/nope", MISSING),
            ("astray", MISSING),
            ("a\0b", "NUL"),
        ] {
            let fault = root.beginning(bad, None).expect_err(bad);
            assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
            assert!(fault.message.ends_with(why), "{bad}: {}", fault.message);
        }
        assert_eq!(root.beginning("", Some("nobody")).expect_err("nobody").code, Code::Unauthenticated);
    }
}
