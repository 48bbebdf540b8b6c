//! Folders of a playground's own, among everybody's temporary ones. It holds a lock on each (flock(2)), which ends with
//! its process, however that ends: what nobody holds any more, the next playground of the same user removes.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use rustix::{
    fs::{Mode, OFlags, open},
    process::geteuid,
};

use super::{random::random_name, remove};

/// Only of folders that are held from the moment that they have such a name.
const NAME: &str = "client-proxy-dev-";
/// `S_ISVTX`: only its owner and the folder's may give something there another name.
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

pub(crate) struct OwnFolder {
    path: PathBuf,
    /// Once it is made.
    held: Mutex<Option<File>>,
}

impl OwnFolder {
    /// Only a name, yet.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(place: &Path) -> anyhow::Result<Self> {
        Ok(Self { path: place.join(format!("{NAME}{}", random_name(12)?)), held: Mutex::default() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, if it is not made, for its owner alone.
    pub(crate) fn make(&self) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let mut fresh = OsString::from(".");
        fresh.push(self.path.file_name().unwrap_or_default());
        let fresh = self.path.with_file_name(fresh);
        DirBuilder::new().mode(0o700).create(&fresh)?;
        let folder = File::open(&fresh)?;
        // On a file system without locks nobody takes it away either.
        let _ = folder.try_lock();
        fs::rename(fresh, &self.path)?;
        *held = Some(folder);
        Ok(())
    }
}

/// Removes what dead playgrounds of this user have left, on a thread of its own.
pub(super) fn sweep() {
    let place = std::env::temp_dir();
    let _ = thread::Builder::new().name("sweep".to_owned()).spawn(move || sweep_in(&place));
}

/// Nothing where others can put something else under a name between a look at it and its removal.
fn sweep_in(place: &Path) -> io::Result<()> {
    let (me, facts) = (geteuid().as_raw(), fs::metadata(place)?);
    let is_kept = facts.mode() & WRITABLE_BY_OTHERS == 0 || facts.mode() & STICKY != 0;
    if !is_kept || ![0, me].contains(&facts.uid()) {
        return Ok(());
    }
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()) {
            continue;
        }
        let Ok(_abandoned) = take(&entry.path(), me) else { continue };
        if let Err(error) = remove::remove(&entry.path()) {
            tracing::warn!(folder = %entry.path().display(), %error, "what a dead playground left cannot be removed");
        }
    }
    Ok(())
}

/// A folder of this user's that nobody holds; now held, so that nobody else removes it.
fn take(path: &Path, me: u32) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(open(path, flags, Mode::empty())?);
    if folder.metadata()?.uid() != me {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    folder.try_lock()?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_nobody_holds_goes_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let own = || {
            let own = OwnFolder::new_in(place.path()).expect("a name");
            own.make().and_then(|()| own.make()).expect("made, once");
            fs::create_dir(own.path().join("full")).expect("made");
            own
        };
        let (alive, dead) = (own(), own().path().to_owned());
        let elsewhere = tempfile::tempdir().expect("a folder");
        fs::write(elsewhere.path().join("kept"), "").expect("written");
        let named = |name: &str| place.path().join(format!("{NAME}{name}"));
        symlink(elsewhere.path(), named("link")).expect("a link");
        fs::write(named("file"), "").expect("written");
        fs::create_dir(place.path().join("client-proxy-other")).expect("made");
        assert!(take(&dead, geteuid().as_raw() + 1).is_err(), "somebody else's");
        // Where everybody may rename, nothing is sure to be what it was.
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        sweep_in(place.path()).expect("read");
        assert!(dead.exists());
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).expect("a mode");
        sweep_in(place.path()).expect("read");
        assert!(!dead.exists() && alive.path().join("full").exists());
        assert!(elsewhere.path().join("kept").exists() && named("link").exists() && named("file").exists());
        assert!(place.path().join("client-proxy-other").exists());
        assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 4, "and none that was not yet held");
    }
}
