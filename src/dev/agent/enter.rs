//! The last step before a program of the sandbox: the agent starts itself in this role, which does what
//! can only be done in the child (a terminal of its own, the sandbox's folder as root), and becomes it.
//!
//! The root is the sandbox's folder with what the machine has beside it: the homes of `user` and `root` and `/tmp`
//! are the sandbox's own, `/usr` and the like are the machine's. That needs user namespaces. Where the
//! machine has none to give, programs see the machine's root and begin in the sandbox's home. Neither is
//! a security boundary.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{ffi::OsStringExt as _, fs::symlink, process::CommandExt as _},
    },
    path::{Component, Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{Mode, OFlags, open, statvfs},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
        mount_remount, unmount,
    },
    process::{chroot, fchdir, getegid, geteuid, ioctl_tiocsctty, setsid},
    thread::UnshareFlags,
};

use crate::dev::envd::{
    files::Root,
    user::{USER, User},
};

/// What the sandbox has of its own, whatever the machine has there; of `home`, what is [`USER`]'s.
const OWN: [&str; 3] = ["home", "root", "tmp"];

/// What programs cannot do without; other folders of the machine may be impossible to show.
const NEEDED: [&str; 3] = ["dev", "proc", "usr"];

/// What a shell says of a program that is not there, or cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;
/// What [`Args::or_nothing`] says where the machine has no user namespaces to give.
pub(crate) const NO_ROOT: i32 = 125;

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The sandbox's folder
    #[arg(long)]
    root: PathBuf,
    /// Where to begin, as seen from inside
    #[arg(long)]
    cwd: PathBuf,
    /// The user's number, as seen from inside
    #[arg(long)]
    uid: u32,
    /// A folder of the machine's, shown where it is, read-only, though the sandbox has its own there
    #[arg(long)]
    show: Vec<PathBuf>,
    /// Standard input is to be the controlling terminal
    #[arg(long)]
    terminal: bool,
    /// Run nothing unless the folder can be the root
    #[arg(long)]
    or_nothing: bool,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Args {
    pub(crate) fn new(root: &Path, cwd: &Path, user: &User, command: &OsStr) -> Self {
        Self {
            root: root.into(),
            cwd: cwd.into(),
            uid: user.uid,
            show: Vec::new(),
            terminal: false,
            or_nothing: false,
            command: vec![command.into()],
        }
    }

    pub(crate) fn with_terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    pub(crate) fn with_folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.show = folders;
        self
    }

    pub(crate) fn or_nothing(mut self) -> Self {
        self.or_nothing = true;
        self
    }

    /// The command that becomes the one wanted; arguments for it can be added.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(super::program());
        command.arg0("client-proxy").args(["sandbox-agent", "enter", "--uid", &self.uid.to_string()]);
        command.arg("--root").arg(&self.root).arg("--cwd").arg(&self.cwd);
        for folder in &self.show {
            command.arg("--show").arg(folder);
        }
        if self.terminal {
            command.arg("--terminal");
        }
        if self.or_nothing {
            command.arg("--or-nothing");
        }
        command.arg("--").args(&self.command);
        command
    }
}

/// Returns only if it fails.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.terminal {
        setsid()?;
        ioctl_tiocsctty(io::stdin())?;
    }
    let Some((name, rest)) = args.command.split_first() else {
        return Ok(());
    };
    let mut command = Command::new(name);
    command.args(rest);
    let begun = if own_root(args).is_ok() {
        std::env::set_current_dir(&args.cwd)
    } else if args.or_nothing {
        std::process::exit(NO_ROOT)
    } else {
        let home = std::env::var_os("HOME").unwrap_or_default();
        command.env("HOME", below(&args.root, Path::new(&home)));
        begin_below(&args.root, &args.cwd).or_else(|_| std::env::set_current_dir(&args.cwd))
    };
    super::die_with_parent();
    let error = begun.map_or_else(|error| error, |()| command.exec());
    eprintln!("{}: {error}", name.display());
    std::process::exit(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN })
}

/// Links are followed as they are where the folder is the root.
fn begin_below(root: &Path, cwd: &Path) -> io::Result<()> {
    let root = Root::new(root)?;
    let cwd = cwd.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let place = root.place(cwd, None).map_err(|fault| io::Error::other(fault.message))?;
    Ok(fchdir(root.directory(&place)?)?)
}

/// Whether programs see the machine's files there; a path from the root on.
pub(crate) fn is_machines(path: &Path) -> bool {
    let mut parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let Some(first) = parts.next() else {
        return false;
    };
    if first == "home" {
        return parts.next().is_some_and(|name| name != USER.name && is_filled(&Path::new("/home").join(name)));
    }
    let top = Path::new("/").join(first);
    OWN.iter().all(|name| first != *name) && (top.is_symlink() || is_filled(&top))
}

fn is_filled(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Where a path of the sandbox is on the machine.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    parts.fold(root.to_owned(), |mut whole, part| {
        whole.push(part);
        whole
    })
}

/// Makes the folder the root of this process, in namespaces of its own (`user_namespaces(7)`): the machine
/// sees nothing of the mounts.
fn own_root(args: &Args) -> io::Result<()> {
    let (folder, uid) = (args.root.as_path(), args.uid);
    let (owner, group) = (geteuid().as_raw(), getegid().as_raw());
    #[expect(deprecated, reason = "unsafe with CLONE_FILES, which is not asked for")]
    rustix::thread::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {owner} 1"))?;
    fs::write("/proc/self/gid_map", format!("{uid} {group} 1"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for name in OWN {
        make_folder(&folder.join(name))?;
    }
    show(Path::new("/"), folder, &OWN)?;
    show(Path::new("/home"), &folder.join("home"), &[USER.name])?;
    let _ = name_user(folder, uid);
    let more: Vec<_> = args.show.iter().filter_map(|path| Some((path, hold(path)?))).collect();
    chroot(folder)?;
    for (path, held) in more {
        // Without it what needs it fails; here is why.
        if let Err(error) = show_held(path, &held) {
            eprintln!("{}: cannot be shown: {error}", path.display());
        }
    }
    Ok(())
}

/// A folder of the machine's where the sandbox has its own.
fn hold(path: &Path) -> Option<OwnedFd> {
    // Never all that is the sandbox's own there.
    let is_whole = path.components().count() < 3 || path == Path::new("/").join(USER.home);
    if !path.is_absolute() || is_machines(path) || is_whole {
        return None;
    }
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Inside the new root, so that no link of the sandbox's leads out of it.
fn show_held(path: &Path, held: &OwnedFd) -> io::Result<()> {
    fs::create_dir_all(path)?;
    let path = fs::canonicalize(path)?;
    mount_bind_recursive(format!("/proc/self/fd/{}", held.as_raw_fd()), &path)?;
    let made = make_all_read_only(&path);
    if made.is_err() {
        let _ = unmount(&path, UnmountFlags::DETACH);
    }
    made
}

/// What is mounted in it has flags of its own.
fn make_all_read_only(folder: &Path) -> io::Result<()> {
    make_read_only(folder)?;
    for below in mounts_below(folder)? {
        match make_read_only(&below) {
            // One that lies under a later one: no path leads to it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// As this process sees them (`proc_pid_mountinfo(5)`).
fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let points = points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point))));
    Ok(points.filter(|point| point.starts_with(folder) && point != folder).collect())
}

/// Blanks, line ends and backslashes are written as three octal digits there.
fn unescaped(point: &[u8]) -> Vec<u8> {
    let mut parts = point.split(|byte| *byte == b'\\');
    let mut whole = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(3));
        whole.push(digits.iter().fold(0, |value: u8, digit| value.wrapping_mul(8).wrapping_add(digit & 7)));
        whole.extend_from_slice(rest);
    }
    whole
}

fn make_read_only(path: &Path) -> Result<(), Errno> {
    // Those of the machine's that nobody may take off (mount_namespaces(7)).
    let locked = MountFlags::from_bits_truncate(u32::try_from(statvfs(path)?.f_flag.bits()).unwrap_or(0));
    let locked = locked & (MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | locked, "")
}

/// Whatever the machine calls that number: `whoami` is to say `user`.
fn name_user(folder: &Path, uid: u32) -> io::Result<()> {
    if uid == 0 {
        return Ok(());
    }
    // On a file system in memory that nobody else sees, and that lives as long as the files are shown.
    let desk = folder.join("tmp");
    mount("tmpfs", &desk, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    let user = format!("user:x:{uid}:{uid}::/home/user:/bin/bash");
    let shown = show_names(folder, &desk, "passwd", uid, &user)
        .and_then(|()| show_names(folder, &desk, "group", uid, &format!("user:x:{uid}:")));
    unmount(&desk, UnmountFlags::DETACH)?;
    shown
}

/// The machine's file, in which that line is the only one for name and number (`passwd(5)`, `group(5)`).
fn show_names(folder: &Path, desk: &Path, file: &str, number: u32, line: &str) -> io::Result<()> {
    let others = |line: &&str| {
        let mut fields = line.split(':');
        fields.next() != Some("user") && fields.nth(1) != Some(&number.to_string())
    };
    let text = fs::read_to_string(Path::new("/etc").join(file))?;
    let lines: Vec<&str> = text.lines().filter(others).chain([line]).collect();
    let written = desk.join(file);
    fs::write(&written, lines.join("\n") + "\n")?;
    Ok(mount_bind(&written, folder.join("etc").join(file))?)
}

/// Shows everything in one folder of the machine in one of the sandbox, but for some names. What the sandbox has
/// itself and the machine only as an empty folder stays the sandbox's.
fn show(from: &Path, to: &Path, but: &[&str]) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries.flatten().filter(|entry| but.iter().all(|name| entry.file_name() != *name)) {
        let (path, shown) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            match symlink(fs::read_link(&path)?, &shown) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        } else if kind.is_dir() && is_filled(&path) {
            make_folder(&shown)?;
            match mount_bind_recursive(&path, &shown) {
                // Without it nothing runs.
                Err(error) if NEEDED.iter().any(|name| entry.file_name() == *name) => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_as_they_are_called() {
        for (point, want) in [("/a/b", "/a/b"), (r"/a\040b\134", r"/a b\"), (r"\011\012/", "\t\n/"), ("", "")] {
            assert_eq!(unescaped(point.as_bytes()), want.as_bytes(), "{point}");
        }
        let below = mounts_below(Path::new("/")).expect("a table");
        assert!(below.contains(&PathBuf::from("/proc")), "{below:?}");
    }
}
