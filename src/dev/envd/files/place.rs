//! Where a path of a caller leads: below the sandbox's folder, as if that were the root. Pure.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
};

use super::fault::Fault;
use crate::dev::envd::user::User;

/// The longest path and the longest name in it that the kernel takes, in bytes (`PATH_MAX`, which counts a NUL, and
/// `NAME_MAX`). What is longer names nothing, and is refused before anybody works on it.
const LONGEST_PATH: usize = 4095;
const LONGEST_NAME: usize = 255;

/// A path from the sandbox's folder on, without `.` and `..`; empty for the folder itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// Where `path` leads for a user. `..` stops at the root, `~` is the user's home, and a path that begins
    /// with the folder's real name, as commands may print it, means what it means to them. Fails for a user
    /// that no sandbox has.
    pub(crate) fn new(path: &str, user: Option<&str>, folder: &Path) -> Result<Self, Fault> {
        let home = User::of(user)?.home;
        let too_long = |text| Err(Fault::invalid(text));
        if path.len() > LONGEST_PATH {
            return too_long(format!("a path has {LONGEST_PATH} bytes at most"));
        }
        if path.contains('\0') {
            return Err(Fault::invalid("a path cannot hold a NUL"));
        }
        let mut place = PathBuf::new();
        let rest = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                place.push(home);
                Path::new(rest)
            }
            Some(_) => return Err(Fault::invalid(format!("'{path}': the homes of other users have no short name"))),
            None if path.starts_with('/') => Path::new(path).strip_prefix(folder).unwrap_or(Path::new(path)),
            None => {
                place.push(home);
                Path::new(path)
            }
        };
        for part in rest.components() {
            match part {
                Component::Normal(name) if name.len() > LONGEST_NAME => {
                    return too_long(format!("a name in a path has {LONGEST_NAME} bytes at most"));
                }
                Component::Normal(name) => place.push(name),
                Component::ParentDir => {
                    place.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        if place.as_os_str().len() > LONGEST_PATH {
            return too_long(format!("a path has {LONGEST_PATH} bytes at most, with the home before it"));
        }
        Ok(Self(place))
    }

    /// For the kernel, which has no empty paths.
    pub(super) fn as_path(&self) -> &Path {
        if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 }
    }

    /// For programs, whose root is the folder.
    pub(crate) fn inside(&self) -> PathBuf {
        Path::new("/").join(&self.0)
    }

    /// The directory it is in, and its name there; `None` for the root.
    pub(crate) fn split(&self) -> Option<(Self, &Path)> {
        Some((Self(self.0.parent()?.to_owned()), Path::new(self.0.file_name()?)))
    }

    pub(crate) fn join(&self, below: impl AsRef<Path>) -> Self {
        Self(self.0.join(below))
    }

    /// The last part; `/` for the root.
    pub(crate) fn name(&self) -> String {
        self.0.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Its parts, the topmost first.
    pub(super) fn names(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.0.iter().map(Path::new)
    }

    /// Where so many of its parts lead.
    pub(super) fn first(&self, parts: usize) -> Self {
        Self(self.0.iter().take(parts).collect())
    }
}

/// As callers know it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::envd::rpc::Code;

    fn place(path: &str, user: Option<&str>) -> Result<String, Code> {
        let place = Place::new(path, user, Path::new("/tmp/x/id1"));
        place.map(|place| place.to_string()).map_err(|fault| fault.code)
    }

    #[test]
    fn paths_stay_below_the_root() {
        for (path, want) in [
            ("/a/b", "/a/b"),
            ("a", "/home/user/a"),
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
            ("a~/~b", "/home/user/a~/~b"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("../../../../etc/passwd", "/etc/passwd"),
            ("/a/./../b/", "/b"),
            ("/", "/"),
            ("/tmp/x/id1/home/user/a", "/home/user/a"),
            ("/tmp/x/id1", "/"),
            ("/tmp/x/id1/../id2/a", "/id2/a"),
            ("/tmp/x/id12/a", "/tmp/x/id12/a"),
        ] {
            assert_eq!(place(path, None).as_deref(), Ok(want), "{path}");
        }
        assert_eq!(place("~other/a", None), Err(Code::InvalidArgument));
        assert_eq!(place("a\0b", None), Err(Code::InvalidArgument));
    }

    #[test]
    fn users_have_homes() {
        assert_eq!(place("a", Some("user")).as_deref(), Ok("/home/user/a"));
        assert_eq!(place("a", Some("root")).as_deref(), Ok("/root/a"));
        assert_eq!(place("/a", Some("root")).as_deref(), Ok("/a"));
        assert_eq!(place("/a", Some("nobody")), Err(Code::Unauthenticated));
    }

    #[test]
    fn places_know_what_is_above_them() {
        let place = Place::new("/a/b/c", None, Path::new("/x")).expect("a place");
        assert!(place.names().eq(["a", "b", "c"].map(Path::new)));
        assert_eq!(place.first(2).to_string(), "/a/b");
        let (parent, name) = place.split().expect("not the root");
        assert_eq!((parent.to_string().as_str(), name), ("/a/b", Path::new("c")));
        let root = Place::new("/", None, Path::new("/x")).expect("a place");
        assert!(root.split().is_none() && root.names().next().is_none());
        assert_eq!(root.name(), "/");
    }

    #[test]
    fn paths_are_no_longer_than_the_kernel_takes() {
        let (longest, name) = ("a/".repeat(2047) + "b", "n".repeat(LONGEST_NAME));
        assert_eq!(
            place(&format!("/{}", &longest[..LONGEST_PATH - 1]), None).map(|place| place.len()),
            Ok(LONGEST_PATH - 1)
        );
        assert!(place(&name, None).is_ok());
        for bad in [longest, format!("/{}", "a/".repeat(2047) + "bc"), name.clone() + "n", format!("a/{name}n/b")] {
            assert_eq!(place(&bad, None), Err(Code::InvalidArgument), "{} bytes", bad.len());
        }
    }
}
