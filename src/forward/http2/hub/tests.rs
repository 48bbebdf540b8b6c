use std::cell::Cell;

use futures_util::poll;
use tokio::{
    net::{TcpListener, TcpStream},
    task::LocalSet,
    time::{advance, pause},
};

use super::{super::Vigilance, *};
use crate::forward::ways::Ways;

/// A peer that takes one stream at a time on each connection.
async fn peer() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    spawn_local(async move {
        while let Ok((socket, _)) = listener.accept().await {
            spawn_local(async move {
                let mut builder = h2::server::Builder::new();
                let mut connection =
                    builder.max_concurrent_streams(1).handshake::<_, bytes::Bytes>(socket).await.expect("HTTP/2");
                while connection.accept().await.is_some() {}
            });
        }
    });
    address
}

async fn connect(address: std::net::SocketAddr) -> Result<Rc<Connection>, ConnectError> {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let open = Ways::new(1, metrics::Gauge::noop()).take().expect("room");
    Connection::open(socket, Vigilance::Patience, Duration::from_secs(1), open).await
}

/// A hub whose streams are all taken.
async fn full() -> (Rc<Hub>, Vec<Box<Stream>>) {
    let (hub, address) = (Hub::new(Life(0)), peer().await);
    let mut streams = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        streams.push(hub.stream(&mut 0, || {}, |_| connect(address)).await.expect("a stream"));
    }
    assert_eq!(hub.connections.borrow().len(), MAX_CONNECTIONS);
    (hub, streams)
}

async fn waits(hub: &Rc<Hub>, awaited: &Cell<bool>) -> Result<Box<Stream>, SendError> {
    hub.stream(&mut 0, || awaited.set(true), |_| async { panic!("there are as many as may be") }).await
}

#[tokio::test]
async fn a_stream_that_is_free_goes_to_whoever_waits_the_longest_and_nobody_overtakes() {
    let test = async {
        let (hub, mut streams) = full().await;
        let awaited = Cell::new(false);
        let wait = || Box::pin(waits(&hub, &awaited));
        let (mut gone, mut first, mut second) = (wait(), wait(), wait());
        for waiting in [&mut gone, &mut first, &mut second] {
            assert!(poll!(waiting).is_pending());
        }
        assert!(awaited.get(), "the peer is there");
        drop(gone);
        streams.pop();
        assert!(poll!(&mut wait()).is_pending(), "it is the first's");
        assert!(poll!(&mut second).is_pending());
        let stream = first.await.expect("a stream");
        // Who leaves with what was handed to it leaves it to the next.
        let mut third = wait();
        assert!(poll!(&mut third).is_pending());
        drop(stream);
        drop(second);
        assert!(poll!(&mut third).is_ready());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn who_waits_for_a_stream_has_one_deadline_whatever_happens_meanwhile() {
    let test = async {
        let (hub, _streams) = full().await;
        let awaited = Cell::new(false);
        pause();
        let mut waiting = Box::pin(waits(&hub, &awaited));
        for _ in 0..4 {
            assert!(poll!(&mut waiting).is_pending());
            hub.thinned.notify_waiters();
            advance(FOR_A_STREAM / 4).await;
        }
        advance(Duration::from_millis(1)).await;
        let given_up = poll!(&mut waiting);
        assert!(matches!(given_up, std::task::Poll::Ready(Err(SendError::Dial(DialError::NoRoom(_))))));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn connections_that_end_as_soon_as_they_have_begun_are_three_at_most() {
    let test = async {
        let (hub, address, dials) = (Hub::new(Life(0)), peer().await, Rc::new(Cell::new(0)));
        let connect = |_| {
            dials.set(dials.get() + 1);
            async move {
                let connection = connect(address).await?;
                connection.retire();
                Ok(connection)
            }
        };
        let error = hub.stream(&mut 0, || {}, connect).await.err().expect("no stream");
        assert!(matches!(error, SendError::Dial(DialError::Unreachable(_))), "{error}");
        assert_eq!(dials.get(), 3);
    };
    LocalSet::new().run_until(test).await;
}
