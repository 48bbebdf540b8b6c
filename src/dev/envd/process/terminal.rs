//! The master side of a pseudo-terminal.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use bytes::BytesMut;
use rustix::{
    io::Errno,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::io::unix::AsyncFd;

use super::messages::Size;

/// envd's.
const CHUNK: usize = 16 * 1024;

pub(super) struct Terminal {
    master: AsyncFd<OwnedFd>,
}

impl Terminal {
    /// The terminal, and the side that programs see.
    pub(super) fn open(size: Size) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        #[expect(deprecated, reason = "unsound for a type that lets go of its descriptor; this one does not")]
        let terminal = Self { master: AsyncFd::new(master)? };
        terminal.resize(size)?;
        Ok((terminal, slave))
    }

    /// The programs are told by `SIGWINCH`.
    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        let short = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let size = Winsize { ws_row: short(size.rows), ws_col: short(size.cols), ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.master.get_ref(), size)?)
    }

    /// What was written next; nothing when no program has the terminal open any more.
    pub(super) async fn read(&self) -> io::Result<BytesMut> {
        let mut chunk = BytesMut::zeroed(CHUNK);
        loop {
            let mut ready = self.master.readable().await?;
            match ready.try_io(|master| Ok(rustix::io::read(master.as_fd(), &mut chunk[..])?)) {
                Ok(Ok(count)) => {
                    chunk.truncate(count);
                    return Ok(chunk);
                }
                // ptmx(4): the other side is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Ok(BytesMut::new()),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    pub(super) async fn write(&self, mut input: &[u8]) -> io::Result<()> {
        while !input.is_empty() {
            let mut ready = self.master.writable().await?;
            if let Ok(count) = ready.try_io(|master| Ok(rustix::io::write(master.as_fd(), input)?)) {
                input = &input[count?..];
            }
        }
        Ok(())
    }
}
