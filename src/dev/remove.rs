//! Removing folders that a sandbox has filled, however deep they are and whatever their modes. (`std` goes down by
//! recursion without a bound, with an open descriptor for each level: it ends where the stack or the descriptors end.)

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    fs::{Access, AtFlags, Dir, Mode, OFlags, ResolveFlags, access, chmod, open, openat, openat2, renameat, unlinkat},
    io::Errno,
    path::Arg,
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::task::TaskTracker;

/// The longest that anybody removes one folder: programs may fill it as fast as it is emptied. (On disks, tens of
/// thousands of folders take minutes.)
pub(crate) const LONGEST: Duration = Duration::from_mins(15);

/// Removals at once; the threads that may block are for others, too.
const AT_ONCE: usize = 4;
/// Folders that are not removed yet, before whoever wants a new one waits: sandboxes may be made, filled and ended
/// faster than that is removed.
const BEHIND: usize = 64;

/// Takes folders away at once, and removes them behind.
#[derive(Clone)]
pub(crate) struct Remover {
    /// How long each removal takes at least.
    delay: Duration,
    behind: TaskTracker,
    places: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

impl Remover {
    pub(crate) fn new(delay: Duration) -> Self {
        let [places, room] = [BEHIND, AT_ONCE].map(|many| Arc::new(Semaphore::new(many)));
        Self { delay, behind: TaskTracker::new(), places, room }
    }

    /// Returns when it has another name, which nobody knows. (Beside it: into another folder, only who may write to it
    /// can move it.)
    pub(crate) async fn discard(&self, folder: PathBuf) {
        let away = folder.with_file_name(format!(".removed-{:016x}", fastrand::u64(..)));
        let folder = match tokio::fs::rename(&folder, &away).await {
            Ok(()) => away,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => folder,
        };
        let Self { delay, room, .. } = self.clone();
        let place = self.places.clone().try_acquire_owned();
        self.behind.spawn(async move {
            let _place = place;
            let _room = room.acquire().await;
            sleep(delay).await;
            clear(folder).await;
        });
    }

    /// Returns when not too many are behind.
    pub(crate) async fn has_place(&self) {
        let _ = self.places.acquire().await;
    }

    /// From now on nobody waits for that.
    pub(crate) fn hold_up_nobody(&self) {
        self.places.close();
    }

    /// Waits until all of them are removed, not for ever.
    pub(crate) async fn finish(&self) {
        self.behind.close();
        let _ = timeout(LONGEST, self.behind.wait()).await;
    }
}

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
/// thing that cannot be removed, when all others are, or after a quarter of an hour. Several may remove the same
/// folder.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match open(above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        above => remove_at(&above?, Path::new(name)),
    }
}

/// The same of whatever has this name there; links are not followed. After a failure the folders that are left are
/// where they were or directly in the topmost one, as `.removing-` and a number.
pub(crate) fn remove_at(above: &OwnedFd, name: &Path) -> io::Result<()> {
    remove_until(above, name, Instant::now() + LONGEST)
}

fn remove_until(above: &OwnedFd, name: &Path, end: Instant) -> io::Result<()> {
    if unlink(above, name)? {
        return Ok(());
    }
    loop {
        let mut pass = Pass { end, removed: 0, fault: None };
        // Looked for by each pass: by then another folder may have the name.
        match enter(above, name).and_then(|top| pass.over(&top)) {
            // Somebody else has removed it meanwhile, or put a file in its place.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(in_words(error)),
        }
        match (unlink(above, name), pass.fault) {
            (Ok(true), _) => return Ok(()),
            (Ok(false), Some(fault)) if pass.removed == 0 => return Err(in_words(fault)),
            (Ok(false), _) => pass.is_in_time().map_err(in_words)?,
            (Err(error), fault) => return Err(in_words(fault.unwrap_or(error))),
        }
    }
}

/// The kernel's words for the end of the time are about connections.
fn in_words(error: Errno) -> io::Error {
    match error {
        Errno::TIMEDOUT => {
            io::Error::new(io::ErrorKind::TimedOut, "it is filled as fast as it is emptied, or is too large")
        }
        error => error.into(),
    }
}

/// So far down a pass goes by recursion: as `rm -r` would, so that who watches the folder hears of the names that he
/// knows. Each level costs descriptors and a place on the stack.
const DEEP: u32 = 8;

/// Once through the topmost folder. Folders that are deeper down than `DEEP` become its own, and are met in a later
/// pass.
struct Pass {
    end: Instant,
    removed: u64,
    fault: Option<Errno>,
}

impl Pass {
    fn over(&mut self, top: &OwnedFd) -> Result<(), Errno> {
        self.is_in_time()?;
        for entry in Dir::read_from(top)? {
            self.is_in_time()?;
            let entry = entry?;
            let name = entry.file_name();
            if !is_dots(name) {
                let outcome =
                    unlink(top, name).and_then(|gone| if gone { Ok(()) } else { self.empty(top, name, top, 1) });
                self.note(outcome);
            }
        }
        Ok(())
    }

    fn empty(&mut self, above: &OwnedFd, name: &CStr, top: &OwnedFd, depth: u32) -> Result<(), Errno> {
        let folder = enter(above, name)?;
        for entry in Dir::read_from(&folder)? {
            self.is_in_time()?;
            let entry = entry?;
            let name = entry.file_name();
            if !is_dots(name) {
                let outcome = match unlink(&folder, name) {
                    Ok(false) if depth < DEEP => self.empty(&folder, name, top, depth + 1),
                    Ok(false) => lift(&folder, name, top),
                    outcome => outcome.map(drop),
                };
                self.note(outcome);
            }
        }
        if unlink(above, name)? { Ok(()) } else { Err(Errno::NOTEMPTY) }
    }

    fn is_in_time(&self) -> Result<(), Errno> {
        if Instant::now() < self.end { Ok(()) } else { Err(Errno::TIMEDOUT) }
    }

    fn note(&mut self, outcome: Result<(), Errno>) {
        match outcome {
            // Gone is gone, whoever did it.
            Ok(()) | Err(Errno::NOENT) => self.removed += 1,
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
    let by_handle = format!("/proc/self/fd/{}", handle.as_raw_fd());
    // Only an owner may set the mode, and others may not need to.
    if access(&by_handle, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        chmod(&by_handle, Mode::RWXU)?;
    }
    openat(&handle, ".", flags | OFlags::RDONLY, Mode::empty())
}

/// Moves a folder up to the topmost one, under a name that nobody has there.
fn lift(from: &OwnedFd, name: &CStr, top: &OwnedFd) -> Result<(), Errno> {
    // Whoever moves a folder must be able to write to it.
    enter(from, name)?;
    renameat(from, name, top, format!(".removing-{:016x}", fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use rustix::fs::{RenameFlags, mkdirat, renameat_with};

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
    fn a_folder_that_is_filled_again_and_again_is_given_up() {
        let place = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(place.path().join("full/a/b")).expect("made");
        let above = open(place.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a folder");
        let name = Path::new("full");
        let error = remove_until(&above, name, Instant::now()).expect_err("no time");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("it is filled"), "{error}");
        // Amid a pass, too: a folder may grow faster than it is read.
        let mut pass = Pass { end: Instant::now(), removed: 0, fault: None };
        let top = enter(&above, name).expect("entered");
        assert_eq!(pass.empty(&top, c"a", &top, 1), Err(Errno::TIMEDOUT));
        remove_at(&above, name).expect("removed");
    }

    #[test]
    fn a_folder_that_takes_the_place_of_one_that_is_moved_away_goes_as_well() {
        let place = tempfile::tempdir().expect("a folder");
        let (full, next) = (place.path().join("full"), place.path().join("next"));
        let above = open(place.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a folder");
        let changed = || fs::metadata(&full).and_then(|facts| facts.modified()).ok();
        // As large as it takes to come amid the first pass.
        let is_amid = (0..6).any(|round| {
            for number in 0..1000 << round {
                fs::create_dir_all(full.join(number.to_string())).expect("made");
            }
            fs::create_dir_all(next.join("x")).expect("made");
            let before = changed();
            let is_exchanged = std::thread::scope(|scope| {
                let exchange = scope.spawn(|| {
                    while changed() == before {}
                    // There is no moment without a folder of that name, unless it is too late.
                    renameat_with(&above, "full", &above, "next", RenameFlags::EXCHANGE).is_ok()
                });
                remove_until(&above, Path::new("full"), Instant::now() + Duration::from_mins(1)).expect("removed");
                exchange.join().expect("no panic")
            });
            assert!(!full.exists());
            fs::remove_dir_all(&next).expect("removed");
            is_exchanged
        });
        assert!(is_amid, "too late each time");
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_a_new_folder_waits_where_many_are_behind_but_not_at_the_end() {
        let place = tempfile::tempdir().expect("a folder");
        let remover = Remover::new(Duration::ZERO);
        let discard = async || {
            let full = place.path().join("full");
            fs::create_dir(&full).expect("made");
            remover.discard(full).await;
        };
        // That of the clock, which stands while anything is done.
        let has_place = async || timeout(Duration::from_hours(1), remover.has_place()).await.is_ok();
        let held = remover.room.acquire_many(4).await.expect("room");
        for number in 0..BEHIND {
            assert!(has_place().await, "{number}");
            discard().await;
        }
        assert!(!has_place().await, "one too many");
        drop(held);
        assert!(has_place().await, "there is a place again");
        let _held = remover.room.acquire_many(4).await.expect("room");
        for _ in 0..=BEHIND {
            discard().await;
        }
        assert!(!has_place().await);
        remover.hold_up_nobody();
        assert!(has_place().await);
    }

    #[test]
    fn what_somebody_else_removes_hides_nothing() {
        let mut pass = Pass { end: Instant::now(), removed: 0, fault: None };
        for outcome in [Err(Errno::NOENT), Err(Errno::ACCESS), Err(Errno::BUSY)] {
            pass.note(outcome);
        }
        assert_eq!((pass.removed, pass.fault), (1, Some(Errno::ACCESS)));
    }

    #[test]
    fn several_may_remove_the_same_folder() {
        let place = tempfile::tempdir().expect("a folder");
        let full = place.path().join("full");
        for _ in 0..10 {
            for number in 0..300 {
                fs::create_dir_all(full.join(format!("{}/{number}/a/b/c", number % 7))).expect("made");
            }
            std::thread::scope(|scope| {
                let removers: Vec<_> = (0..3).map(|_| scope.spawn(|| remove(&full))).collect();
                for remover in removers {
                    remover.join().expect("no panic").expect("removed");
                }
            });
            assert!(!full.exists());
        }
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
