//! The end of a connection whose client may still be sending. Closed at once, its unread bytes would make the
//! kernel reset it, and the client might never read its answer (RFC 9112 §9.6).

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

/// A client that sends nothing for so long has nothing to send.
const QUIET: Duration = Duration::from_secs(5);
/// And one that goes on does not want to read.
const WHOLE: Duration = Duration::from_secs(30);
const WASTE: usize = 16 * 1024;

/// Ends our side, and reads what the client sends until it ends its own.
pub(super) async fn linger(mut transport: impl AsyncRead + AsyncWrite + Unpin) {
    let until_it_ends = async {
        // Over TLS, this waits for a client that does not read.
        if transport.shutdown().await.is_ok() {
            // Not zeroed: most clients have left already, and nothing is read.
            let mut waste = Vec::with_capacity(WASTE);
            while let Ok(Ok(1..)) = timeout(QUIET, transport.read_buf(&mut waste)).await {
                waste.clear();
            }
        }
    };
    let _ = timeout(WHOLE, until_it_ends).await;
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{duplex, split},
        time::Instant,
    };

    use super::*;

    /// How long it takes with a client that does this with its end.
    async fn lingered(client: impl AsyncFnOnce(tokio::io::DuplexStream)) -> Duration {
        let (near, far) = duplex(WASTE);
        let start = Instant::now();
        tokio::select! {
            () = linger(near) => {}
            () = async { client(far).await; std::future::pending().await } => {}
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ends_is_not_waited_for() {
        let sends = async |mut client: tokio::io::DuplexStream| {
            client.write_all(&vec![0; 50 << 20]).await.expect("somebody who reads");
            assert_eq!(client.read(&mut [0]).await.expect("no error"), 0, "our side has ended");
        };
        assert_eq!(lingered(sends).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_silent_is_left_soon_and_one_that_never_stops_is_cut() {
        let silent = async |_client| std::future::pending::<()>().await;
        assert_eq!(lingered(silent).await, QUIET);
        let endless = async |client| {
            let (_read, mut write) = split(client);
            while write.write_all(b"x").await.is_ok() {
                tokio::time::sleep(QUIET / 2).await;
            }
        };
        assert_eq!(lingered(endless).await, WHOLE);
    }
}
