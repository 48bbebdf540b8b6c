//! Removing folders that a sandbox has filled, however deep they are and whatever their modes. (`std` goes down by
//! recursion, with an open descriptor for each level: it ends where the stack or the descriptors end.)

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, chmod, open, openat, openat2, renameat, unlinkat},
    io::Errno,
    path::Arg,
};
use tokio::task::spawn_blocking;

/// [`remove`] off the runtime's threads. What is left is nobody's any more: it is written down.
pub(crate) async fn clear(folder: PathBuf) {
    let _ = spawn_blocking(move || {
        if let Err(error) = remove(&folder) {
            tracing::warn!(folder = %folder.display(), %error, "files of a sandbox are left");
        }
    })
    .await;
}

/// Removes a folder with all it holds. What is not there is as good as removed. Blocks; fails with the first
/// thing that cannot be removed, when all others are.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        above => remove_at(&above?, Path::new(name)),
    }
}

/// The same of whatever has this name there; links are not followed.
pub(crate) fn remove_at(above: &OwnedFd, name: &Path) -> io::Result<()> {
    if unlink(above, name)? {
        return Ok(());
    }
    let top = enter(above, name)?;
    loop {
        let mut pass = Pass::default();
        pass.over(&top)?;
        match unlink(above, name) {
            Ok(true) => return Ok(()),
            Ok(false) if pass.removed > 0 => {}
            Ok(false) => return Err(pass.fault.unwrap_or(Errno::NOTEMPTY).into()),
            Err(error) => return Err(pass.fault.unwrap_or(error).into()),
        }
    }
}

/// Once through the topmost folder. What its folders hold in folders of their own becomes its own, and is met in a
/// later pass: so no path is ever longer than two names.
#[derive(Default)]
struct Pass {
    removed: u64,
    fault: Option<Errno>,
}

impl Pass {
    fn over(&mut self, top: &OwnedFd) -> io::Result<()> {
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_dots(name) {
                let outcome = unlink(top, name).and_then(|gone| if gone { Ok(()) } else { self.empty(top, name) });
                self.note(outcome);
            }
        }
        Ok(())
    }

    fn empty(&mut self, top: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let folder = enter(top, name)?;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_dots(name) {
                let outcome =
                    unlink(&folder, name).and_then(|gone| if gone { Ok(()) } else { lift(&folder, name, top) });
                self.note(outcome);
            }
        }
        if unlink(top, name)? { Ok(()) } else { Err(Errno::NOTEMPTY) }
    }

    fn note(&mut self, outcome: Result<(), Errno>) {
        match outcome {
            Ok(()) => self.removed += 1,
            Err(error) => self.fault = self.fault.or(Some(error)),
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Whether nothing has this name any more; a folder that holds something stays.
fn unlink(above: &OwnedFd, name: impl Arg + Copy) -> Result<bool, Errno> {
    let outcome = match unlinkat(above, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(above, name, AtFlags::REMOVEDIR),
        outcome => outcome,
    };
    match outcome {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A folder to be read and changed, whatever its mode was. What is mounted there is not entered: it is somebody else's.
fn enter(above: &OwnedFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = openat2(above, name, flags | OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_XDEV)?;
    // By the handle (proc(5)): the name may be another one's by now.
    chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::RWXU)?;
    openat(&handle, ".", flags | OFlags::RDONLY, Mode::empty())
}

/// Moves a folder up to the topmost one, under a name that nobody has there.
fn lift(from: &OwnedFd, name: &CStr, top: &OwnedFd) -> Result<(), Errno> {
    // Whoever moves a folder must be able to write to it.
    enter(from, name)?;
    renameat(from, name, top, format!("{:016x}", fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn everything_goes_but_what_links_lead_to() {
        let place = tempfile::tempdir().expect("a folder");
        let (full, kept) = (place.path().join("full"), place.path().join("kept"));
        fs::write(&kept, "kept").expect("written");
        for folder in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(full.join(folder)).expect("made");
        }
        for file in ["f", "a/f", "a/b/c/f"] {
            fs::write(full.join(file), "x").expect("written");
        }
        symlink(place.path(), full.join("a/link")).expect("linked");
        fs::set_permissions(full.join("a/b"), fs::Permissions::from_mode(0o000)).expect("a mode");
        remove(&full).expect("removed");
        assert!(!full.exists() && kept.exists());
        remove(&full).expect("not there");
        remove(&full.join("nor/this")).expect("not there");
        remove(&kept).expect("a file");
        assert!(!kept.exists());
    }

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let place = tempfile::tempdir().expect("a folder");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = open(place.path(), flags, Mode::empty()).expect("a folder");
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::RWXU).expect("made");
            at = openat(&at, "d", flags, Mode::empty()).expect("opened");
        }
        remove(&place.path().join("d")).expect("removed");
        assert!(!place.path().join("d").exists());
    }
}
