//! Accepts, and gives each socket to the worker with the fewest.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{sync::Semaphore, time::sleep};

use super::worker::{Accepted, Inbox};
use crate::shutdown::Shutdown;

/// Connections that the kernel completes while nobody accepts; it is capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// After an error that says nothing about one connection (out of descriptors, most likely).
const PAUSE: Duration = Duration::from_millis(100);

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

/// Accepts until the shutdown closes the doors. `room`: one permit per connection.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    workers: Vec<Inbox>,
    room: Arc<Semaphore>,
    shutdown: Shutdown,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit.map_err(io::Error::other)?,
            () = shutdown.closing().cancelled() => return Ok(()),
        };
        let accepted = tokio::select! {
            accepted = accept_one(&listener) => accepted,
            () = shutdown.closing().cancelled() => return Ok(()),
        };
        match accepted {
            Ok((socket, peer)) => {
                if let Some(worker) = workers.iter().min_by_key(|worker| worker.load()) {
                    worker.give(Accepted { socket, peer, permit, tracked: shutdown.track() });
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

async fn accept_one(listener: &tokio::net::TcpListener) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (socket, peer) = listener.accept().await?;
    // Small answers are not held back for an acknowledgement.
    socket.set_nodelay(true)?;
    // A worker will register it with its own reactor.
    Ok((socket.into_std()?, peer))
}

/// The client was gone before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}
