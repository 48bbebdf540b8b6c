//! Whether a peer that is lost before it has greeted speaks HTTP/2 at all: the library tells of an error only.

use std::{cell::Cell, rc::Rc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_util::io::InspectReader;

/// Where a frame's type stands in it (RFC 9113 §4.1).
const KIND: usize = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// What a peer has said first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heard {
    #[default]
    Nothing,
    /// A frame with which a server may begin (RFC 9113 §3.4).
    Http2,
    Else,
}

/// A socket, and what its peer has said first.
pub(super) fn listened(socket: TcpStream) -> (impl AsyncRead + AsyncWrite + Unpin, Rc<Cell<Heard>>) {
    let heard = Rc::<Cell<Heard>>::default();
    let told = heard.clone();
    // How much was read, as far as it is looked at.
    let mut read = 0;
    let look = move |bytes: &[u8]| {
        if read > KIND || bytes.is_empty() {
            return;
        }
        let begins_well = bytes.get(KIND - read).is_some_and(|kind| matches!(*kind, SETTINGS | GOAWAY));
        told.set(if begins_well { Heard::Http2 } else { Heard::Else });
        read += bytes.len();
    };
    (InspectReader::new(socket, look), heard)
}
