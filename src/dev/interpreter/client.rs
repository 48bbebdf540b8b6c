//! Whoever waits for an answer, as far as its connection tells.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use axum::{extract::connect_info::Connected, serve::IncomingStream};
use tokio::net::{TcpListener, TcpStream};

use crate::dev::reset;

/// Our end of its connection, if a descriptor was to be had.
#[derive(Clone, Debug)]
pub(super) struct Client(Option<Arc<OwnedFd>>);

impl Connected<IncomingStream<'_, TcpListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self::at(stream.io())
    }
}

impl Client {
    fn at(stream: &TcpStream) -> Self {
        // Small answers go out at once: a listener that sees to it (`TapIo`) can tell nothing but addresses.
        let _ = stream.set_nodelay(true);
        Self(stream.as_fd().try_clone_to_owned().ok().map(Arc::new))
    }

    /// Whether the sandbox's pause has cut it off, and it had not left before.
    pub(super) fn was_cut(&self) -> bool {
        self.0.as_ref().is_some_and(reset::was_cut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (outer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (outer.expect("connected"), accepted.expect("accepted").0)
    }

    #[tokio::test]
    async fn a_pause_is_told_from_a_client_that_leaves() {
        let (outer, mut inner) = connection().await;
        let client = Client::at(&inner);
        assert!(!client.was_cut(), "it waits");
        drop(outer);
        assert_eq!(inner.read(&mut [0]).await.expect("an end"), 0);
        assert!(!client.was_cut());

        // What is not read makes a reset of its end.
        let (outer, mut inner) = connection().await;
        let client = Client::at(&inner);
        inner.write_all(b"x").await.expect("sent");
        outer.readable().await.expect("it is there");
        drop(outer);
        inner.read(&mut [0]).await.expect_err("a reset");
        assert!(!client.was_cut());

        // Its end is not read.
        let (mut outer, inner) = connection().await;
        let client = Client::at(&inner);
        outer.shutdown().await.expect("left");
        reset::cut(&inner).expect("reset");
        assert!(!client.was_cut());
        outer.read(&mut [0]).await.expect_err("a reset: it may have waited for an answer");

        for noticed in ["not", "read", "written"] {
            let (_outer, mut inner) = connection().await;
            let client = Client::at(&inner);
            reset::cut(&inner).expect("reset");
            match noticed {
                "read" => _ = inner.read(&mut [0]).await.expect_err("a reset"),
                "written" => _ = inner.write(b"x").await.expect_err("a reset"),
                _ => {}
            }
            assert!(client.was_cut() && client.was_cut(), "{noticed}");
            drop(inner);
            assert!(client.was_cut(), "{noticed}");
        }
    }
}
