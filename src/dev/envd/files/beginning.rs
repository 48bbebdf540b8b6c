//! Where a program can begin.

use super::{fault::Fault, place::Place, root::Root};
use crate::dev::agent::enter;

impl Root {
    /// A directory of the sandbox's folder or, where programs see the machine's files, of the machine. Blocks.
    pub(crate) fn beginning(&self, path: &str, user: Option<&str>) -> Result<Place, Fault> {
        let place = self.place(path, user)?;
        let is_there =
            if enter::is_machines(place.as_path()) { place.inside().is_dir() } else { self.directory(&place).is_ok() };
        if is_there { Ok(place) } else { Err(Fault::invalid(format!("cwd '{place}' does not exist"))) }
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
        symlink("/", folder.path().join("home/user/top")).expect("a link");
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
        ] {
            let place = root.beginning(path, None).unwrap_or_else(|fault| panic!("{path}: {fault:?}"));
            assert_eq!(place.to_string(), want, "{path}");
        }
        // What is in the folder under the machine's own names, programs do not see.
        for bad in ["/nope", "file", "top/usr/bin", "/etc/own", "/tmp", "current/nope", "a\0b"] {
            assert_eq!(root.beginning(bad, None).expect_err(bad).code, Code::InvalidArgument, "{bad}");
        }
        assert_eq!(root.beginning("", Some("nobody")).expect_err("nobody").code, Code::Unauthenticated);
    }
}
