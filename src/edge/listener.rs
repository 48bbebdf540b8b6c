//! Accepts, and gives each socket to the worker with the fewest.

use std::{future::poll_fn, io, net::SocketAddr, sync::Arc, task::Poll, time::Duration};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::{net::TcpListener, time::sleep};

use super::{
    room::Room,
    worker::{Accepted, Door, Inbox},
};
use crate::shutdown::Shutdown;

/// Connections that the kernel completes while nobody accepts; it is capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// After an error that says nothing about one connection (out of descriptors, most likely).
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// A client that is gone without a word is found out by its kernel's silence, also where nothing is expected of it:
/// while it is held, in a tunnel, in an answer that streams.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));

/// Binds a listening socket that does not block.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` beside `0.0.0.0` on one port: each its own listener.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    // All that are accepted inherit it.
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until the shutdown closes the doors. `room`: one place per connection. One loop for all
/// listeners: nothing is accepted without a place, and a place waits for whichever client is first.
pub(crate) async fn accept(
    listeners: Vec<(TcpListener, Door)>,
    workers: Vec<Inbox>,
    room: Arc<Room>,
    shutdown: Shutdown,
) {
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
            Ok((socket, peer, door)) => {
                if let Some(worker) = workers.iter().min_by_key(|worker| worker.load()) {
                    worker.give(Accepted { socket, peer, door, place, tracked: shutdown.track() });
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
async fn accept_one(
    listeners: &[(TcpListener, Door)],
    turn: usize,
) -> io::Result<(std::net::TcpStream, SocketAddr, Door)> {
    let (accepted, door) = poll_fn(|cx| {
        let next = |n: usize| &listeners[turn.wrapping_add(n) % listeners.len()];
        let mut polled = (0..listeners.len()).map(next).map(|(listener, door)| (listener.poll_accept(cx), *door));
        match polled.find(|(accepted, _)| accepted.is_ready()) {
            Some((Poll::Ready(accepted), door)) => Poll::Ready((accepted, door)),
            _ => Poll::Pending,
        }
    })
    .await;
    let (socket, peer) = accepted?;
    // Small answers are not held back for an acknowledgement.
    socket.set_nodelay(true)?;
    // A worker will register it with its own reactor.
    Ok((socket.into_std()?, peer, door))
}

/// The client was gone before it was accepted.
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::edge::worker::{
        self,
        tests::{Double, tools},
    };

    #[tokio::test]
    async fn the_kernel_looks_after_clients_that_say_nothing() {
        let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let listener = TcpListener::from_std(listener).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (_client, accepted) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        let accepted = accepted.expect("a connection").0;
        let socket = socket2::SockRef::from(&accepted);
        assert!(socket.keepalive().expect("a socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket"), Duration::from_secs(30));
        assert_eq!(socket.tcp_keepalive_interval().expect("a socket"), Duration::from_secs(10));
    }

    fn loads(workers: &[Inbox]) -> Vec<usize> {
        workers.iter().map(Inbox::load).collect()
    }

    fn is_even(loads: &[usize]) -> bool {
        let most = loads.iter().max().copied().unwrap_or_default();
        // At most 1.15 times the mean, in whole numbers.
        most * loads.len() * 100 <= loads.iter().sum::<usize>() * 115
    }

    /// Keep-alive connections, each of which had an answer.
    async fn connect(address: SocketAddr, count: usize) -> Vec<tokio::net::TcpStream> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = tokio::net::TcpStream::connect(address).await.expect("a connection");
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("a peer that reads");
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                answer.push(client.read_u8().await.expect("an answer"));
            }
            clients.push(client);
        }
        clients
    }

    #[tokio::test]
    async fn connections_are_spread_evenly_also_after_they_left_unevenly() {
        let time = Duration::from_mins(1);
        let tools = tools(time);
        let shutdown = tools.shutdown.clone();
        for (workers, count) in [(2, 8), (2, 64), (4, 8), (4, 64), (3, 64)] {
            let start = |number| worker::start(number, tools.clone(), || Double(|| {})).expect("a thread").0;
            let workers: Vec<_> = (0..workers).map(start).collect();
            let listener = bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
            let address = listener.local_addr().expect("an address");
            let listener = TcpListener::from_std(listener).expect("a listener");
            let accepting =
                tokio::spawn(accept(vec![(listener, Door::Plain)], workers.clone(), Room::new(1000), shutdown.clone()));
            let mut clients = connect(address, count).await;
            assert!(is_even(&loads(&workers)), "{:?}", loads(&workers));
            // All connections of one worker leave, as far as they can be told: each took its turn.
            let leaving = count.div_ceil(workers.len());
            let mut at = 0;
            clients.retain(|_| {
                at += 1;
                (at - 1) % workers.len() != 0
            });
            tokio::time::timeout(time, async {
                while loads(&workers).iter().sum::<usize>() > clients.len() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("they are seen to leave");
            assert!(!is_even(&loads(&workers)), "{:?}", loads(&workers));
            clients.extend(connect(address, leaving).await);
            assert!(is_even(&loads(&workers)), "{:?}", loads(&workers));
            accepting.abort();
        }
    }
}
