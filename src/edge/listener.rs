//! Accepts, and gives each socket to the worker with the fewest.

use std::{future::poll_fn, io, net::SocketAddr, sync::Arc, task::Poll, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net::TcpListener, time::sleep};

use super::{
    room::Room,
    worker::{Accepted, Inbox},
};
use crate::shutdown::Shutdown;

/// Connections that the kernel completes while nobody accepts; it is capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// After an error that says nothing about one connection (out of descriptors, most likely).
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Binds a listening socket that does not block.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` on one port: each its own listener.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until the shutdown closes the doors. `room`: one place per connection. One loop for all
/// listeners: nothing is accepted without a place, and a place waits for whichever client is first.
pub(crate) async fn accept(listeners: Vec<TcpListener>, workers: Vec<Inbox>, room: Arc<Room>, shutdown: Shutdown) {
    let mut turn = 0_usize;
    loop {
        let place = tokio::select! {
            place = room.take() => place,
            () = shutdown.closing().cancelled() => return,
        };
        turn = turn.wrapping_add(1);
        let accepted = tokio::select! {
            accepted = accept_one(&listeners, turn) => accepted,
            () = room.resized() => continue,
            () = shutdown.closing().cancelled() => return,
        };
        match accepted {
            Ok((socket, peer)) => {
                if let Some(worker) = workers.iter().min_by_key(|worker| worker.load()) {
                    worker.give(Accepted { socket, peer, place, tracked: shutdown.track() });
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "accept failed");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Which listener is looked at first goes by turns: a busy one does not keep the others waiting.
async fn accept_one(listeners: &[TcpListener], turn: usize) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (socket, peer) = poll_fn(|cx| {
        let next = |n: usize| &listeners[turn.wrapping_add(n) % listeners.len()];
        let mut polled = (0..listeners.len()).map(|n| next(n).poll_accept(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await?;
    // Small answers are not held back for an acknowledgement.
    socket.set_nodelay(true)?;
    // A worker will register it with its own reactor.
    Ok((socket.into_std()?, peer))
}

/// The client was gone before it was accepted.
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
