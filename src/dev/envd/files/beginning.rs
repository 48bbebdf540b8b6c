//! Where a program can begin: in a directory of the sandbox's folder or, where programs see the machine's files, of
//! the machine. Everything here blocks.

use rustix::fs::{FileType, readlinkat};

use super::{
    fault::Fault,
    place::Place,
    root::{Root, kind_of},
};
use crate::dev::agent::enter;

/// As the kernel's (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

impl Root {
    /// A directory, as programs see it.
    pub(crate) fn beginning(&self, path: &str, user: Option<&str>) -> Result<Place, Fault> {
        let place = self.place(path, user)?;
        let (mut end, mut links) = (place.clone(), 0);
        // The kernel would look for a link's target in the folder only.
        while let Some(next) = self.after_first_link(&end).filter(|_| links < LINKS_MAX) {
            (end, links) = (next, links + 1);
        }
        let machines = end.as_path().ancestors().any(enter::is_machines);
        let is_there = if machines { end.inside().is_dir() } else { self.directory(&end).is_ok() };
        if is_there { Ok(place) } else { Err(Fault::invalid(format!("cwd '{place}' does not exist"))) }
    }

    /// The place with the topmost link replaced by where it leads, unless programs see another file there.
    fn after_first_link(&self, place: &Place) -> Option<Place> {
        let parts: Vec<_> = place.as_path().ancestors().collect();
        for at in parts.into_iter().rev().skip(1).take_while(|at| !enter::is_machines(at)) {
            let (handle, stat) = self.handle(&self.place(&format!("/{}", at.display()), None).ok()?, false).ok()?;
            if kind_of(&stat) == FileType::Symlink {
                let target = readlinkat(&handle, "", Vec::new()).ok()?;
                // Nothing above it is a link, so that `..` of the target is what it looks like.
                let above = at.parent()?.join(target.to_str().ok()?);
                let next = above.join(place.as_path().strip_prefix(at).ok()?);
                return self.place(&format!("/{}", next.display()), None).ok();
            }
        }
        None
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
        for (path, want) in [
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
        for bad in
            ["/nope", "file", "top/nope", "/etc/own", "/tmp", "current/nope", "round", "lost", "machines/nope", "a\0b"]
        {
            assert_eq!(root.beginning(bad, None).expect_err(bad).code, Code::InvalidArgument, "{bad}");
        }
        assert_eq!(root.beginning("", Some("nobody")).expect_err("nobody").code, Code::Unauthenticated);
    }
}
