//! The end of a connection whose client may still be sending. Closed at once, its unread bytes would make the
//! kernel reset it, and the client might never read its answer (RFC 9112 §9.6).

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::socket::Transport;

/// A client that sends nothing for so long has nothing to send.
const QUIET: Duration = Duration::from_secs(5);
/// And one that goes on does not want to read.
const WHOLE: Duration = Duration::from_secs(30);
const WASTE: usize = 16 * 1024;

/// Ends our side, and reads what the client sends until it ends its own.
pub(super) async fn linger<T: Transport>(mut transport: T) {
    let until_it_ends = async {
        // Over TLS, this waits for a client that does not read.
        if transport.shutdown().await.is_ok() {
            let mut waste = vec![0; WASTE];
            while let Ok(Ok(1..)) = timeout(QUIET, transport.read(&mut waste)).await {}
        }
    };
    let _ = timeout(WHOLE, until_it_ends).await;
}
