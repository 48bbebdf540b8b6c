//! A sandbox's folder as the root of its file system: no path, no `..` and no symbolic link leads out of
//! it by accident. It is no security boundary: what runs in the sandbox sees the whole machine. Everything
//! here blocks.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, open, openat, openat2, renameat},
    io::Errno,
};

use super::{fault::Fault, place::Place};
use crate::dev::remove::remove_at;

/// Directories are made and files are written with what the process's mask leaves of these.
const DIRECTORY: Mode = Mode::from_raw_mode(0o777);
const FILE: Mode = Mode::from_raw_mode(0o666);

pub(crate) struct Root {
    folder: PathBuf,
    descriptor: OwnedFd,
}

impl Root {
    /// Holds the folder open, so that it stays the same one whatever becomes of its name.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { folder: folder.to_owned(), descriptor: open(folder, flags, Mode::empty())? })
    }

    pub(crate) fn place(&self, path: &str, user: Option<&str>) -> Result<Place, Fault> {
        Place::new(path, user, &self.folder)
    }

    /// The kernel resolves the path with the folder as root, symbolic links too (openat2(2), which takes no
    /// flag that means nothing).
    fn open(&self, place: &Place, flags: OFlags) -> io::Result<OwnedFd> {
        let mode = if flags.contains(OFlags::CREATE) { FILE } else { Mode::empty() };
        // A named pipe would be waited for otherwise.
        let patience = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
        let flags = flags | OFlags::CLOEXEC | patience;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(&self.descriptor, place.as_path(), flags, mode, resolve)?)
    }

    /// A handle for questions; of a link itself unless it is followed.
    pub(crate) fn handle(&self, place: &Place, follow: bool) -> io::Result<(OwnedFd, Stat)> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let handle = self.open(place, flags)?;
        let stat = fstat(&handle)?;
        Ok((handle, stat))
    }

    /// A directory, links followed. Fails with `ENOTDIR` for anything else.
    pub(crate) fn directory(&self, place: &Place) -> io::Result<OwnedFd> {
        self.open(place, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// A regular file to be read, its length, and when it was changed.
    pub(crate) fn open_to_read(&self, place: &Place) -> Result<(File, u64, SystemTime), Fault> {
        let shown = place.to_string();
        let fault = |error: io::Error| Fault::looking(&error, &shown);
        let file = File::from(self.open(place, OFlags::RDONLY).map_err(fault)?);
        let facts = file.metadata().map_err(fault)?;
        if facts.is_dir() {
            return Err(Fault::of(&Errno::ISDIR.into(), &shown));
        }
        if !facts.is_file() {
            return Err(Fault::invalid(format!("path '{shown}' is not a regular file")));
        }
        let modified = facts.modified().map_err(fault)?;
        Ok((file, facts.len(), modified))
    }

    /// A regular file to be written over; it and the directories above it are made where they are missing.
    pub(crate) fn open_to_write(&self, place: &Place) -> Result<File, Fault> {
        let shown = place.to_string();
        let fault = |error: io::Error| Fault::of(&error, &shown);
        let irregular = || Fault::invalid(format!("path '{shown}' is not a regular file"));
        if place.split().is_none() {
            return Err(fault(Errno::ISDIR.into()));
        }
        let mut opened = self.open(place, OFlags::WRONLY);
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.make_above(place)?;
            opened = self.open(place, OFlags::WRONLY | OFlags::CREATE);
        }
        let file = match opened {
            // A named pipe that nobody reads, or a socket.
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return Err(irregular()),
            opened => File::from(opened.map_err(fault)?),
        };
        if !file.metadata().map_err(fault)?.is_file() {
            return Err(irregular());
        }
        Ok(file)
    }

    /// A file without a name, on the file system of the folder.
    pub(crate) fn nameless_file(&self) -> io::Result<File> {
        let top = self.path_of(&self.descriptor);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match open(&top, flags | OFlags::TMPFILE, FILE) {
            Ok(file) => return Ok(file.into()),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // A file system that cannot do that: a name for a moment.
        let name = top.join(format!(".upload-{:016x}", fastrand::u64(..)));
        let file = open(&name, flags | OFlags::CREATE | OFlags::EXCL, FILE)?;
        rustix::fs::unlink(&name)?;
        Ok(file.into())
    }

    /// Makes the directories above, as far as they are missing, and holds the lowest.
    pub(crate) fn make_above(&self, place: &Place) -> Result<OwnedFd, Fault> {
        let fault = |error: io::Error| Fault::of(&error, &place.to_string());
        let above = place.split().map_or_else(|| place.clone(), |(above, _)| above);
        match self.directory(&above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map_err(fault),
        }
        // Downwards: each step is one name, however long the path.
        let mut held = self.descriptor.try_clone().map_err(fault)?;
        for (level, name) in above.names().enumerate() {
            match mkdirat(&held, name, DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(fault(error.into())),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            held = match openat(&held, name, flags, Mode::empty()) {
                // A link, perhaps, which leads on from the root.
                Err(Errno::NOTDIR | Errno::LOOP) => self.directory(&above.first(level + 1)).map_err(fault)?,
                opened => opened.map_err(|error| fault(error.into()))?,
            };
        }
        Ok(held)
    }

    /// Says whether it was missing. What is missing above it is made, too.
    pub(crate) fn make_directory(&self, place: &Place) -> Result<bool, Fault> {
        let Some((_, name)) = place.split() else {
            return Ok(false);
        };
        match mkdirat(self.make_above(place)?, name, DIRECTORY) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(Fault::of(&error.into(), &place.to_string())),
        }
    }

    /// rename(2), links not followed.
    pub(crate) fn rename(&self, from: &Place, to: &Place) -> Result<(), Fault> {
        let (Some((above, name)), Some((_, new_name))) = (from.split(), to.split()) else {
            return Err(Fault::invalid("the root cannot be moved, nor replaced"));
        };
        let fault = |error: io::Error| Fault::of(&error, &from.to_string());
        let above = self.directory(&above).map_err(fault)?;
        let new_above = self.make_above(to)?;
        renameat(&above, name, &new_above, new_name).map_err(|error| match error {
            Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR | Errno::NOTDIR => Fault::of(&error.into(), &to.to_string()),
            error => fault(error.into()),
        })
    }

    /// A file, a link, or a directory with all it holds. What is not there is as good as removed.
    pub(crate) fn remove(&self, place: &Place) -> Result<(), Fault> {
        let Some((above, name)) = place.split() else {
            return Err(Fault::invalid("the root cannot be removed"));
        };
        let fault = |error: io::Error| Fault::of(&error, &place.to_string());
        match self.directory(&above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            above => remove_at(&above.map_err(fault)?, name).map_err(|error| {
                let mut fault = fault(error);
                if self.handle(place, false).is_ok_and(|(_, stat)| kind_of(&stat) == FileType::Directory) {
                    fault.message += "; what is left of the folders in it may be directly in it, as .removing-*";
                }
                fault
            }),
        }
    }

    /// The path of a link's target with the folder as root, or of itself where it leads nowhere.
    pub(crate) fn target(&self, place: &Place) -> Place {
        let find = || -> io::Result<Place> {
            let (handle, _) = self.handle(place, true)?;
            let real = std::fs::read_link(self.path_of(&handle))?;
            let top = std::fs::read_link(self.path_of(&self.descriptor))?;
            let below = real.strip_prefix(top).map_err(io::Error::other)?;
            Place::new(&format!("/{}", below.display()), None, &self.folder).map_err(|_| io::ErrorKind::Other.into())
        };
        find().unwrap_or_else(|_| place.clone())
    }

    /// A name by which this process can reach what it holds open (proc(5)).
    #[expect(clippy::unused_self, reason = "such a name is for use with what this root has resolved")]
    pub(crate) fn path_of(&self, descriptor: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
    }
}

pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests;
