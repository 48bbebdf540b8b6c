//! From an accepted socket to a connection that speaks HTTP: whom it is from, TLS, which HTTP. All of it within
//! the time for a head, and while the process takes connections.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    rc::Rc,
};

use tokio::time::{Instant, timeout_at};

use super::{
    conn::{self, Client, Protocol, Serve},
    socket::{Socket, Transport},
    tls::{Failure, Handshakes, Secure},
    watch::Patience,
    worker::{Door, Tools},
};
use crate::telemetry::Gauged;

/// A client that has not said enough yet.
pub(super) struct Arrival {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    pub(super) door: Door,
    pub(super) patience: Patience,
}

/// A connection that speaks HTTP, and is counted as one.
type Speaking<'a> = (Gauged, Pin<Box<dyn Future<Output = ()> + 'a>>);

/// Serves it to its end, if it comes to HTTP at all. `places`: the worker's share of all connections.
pub(super) fn serve<'a, S: Serve>(
    arrival: Arrival,
    tools: &'a Tools,
    handshakes: &'a Rc<Handshakes>,
    places: usize,
    server: Rc<S>,
) -> impl Future<Output = ()> + use<'a, S> {
    // Boxed: what arriving takes, TLS above all, is not to be carried as long as the connection lasts.
    let arriving = Box::pin(arrive(arrival, tools, handshakes, places, server));
    async move {
        if let Some((_counted, speaking)) = arriving.await {
            speaking.await;
        }
    }
}

async fn arrive<'a, S: Serve>(
    arrival: Arrival,
    tools: &'a Tools,
    handshakes: &Rc<Handshakes>,
    places: usize,
    server: Rc<S>,
) -> Option<Speaking<'a>> {
    let Arrival { socket, peer, door, patience } = arrival;
    let _counted = Gauged::new(&tools.metrics.connections.unknown);
    let (peer, due) = (peer.ip().to_canonical(), Instant::now() + patience.head);
    match door {
        Door::Plain => {
            let (socket, ip, protocol) = plain(socket, peer, due, tools).await?;
            Some(speak(socket, protocol, Client { ip, secure: false }, server, patience, tools))
        }
        Door::Tls => {
            // Boxed: no plain connection carries what TLS takes.
            let (socket, ip) = Box::pin(secure(socket, peer, due, tools, handshakes, places)).await?;
            let protocol = socket.protocol();
            Some(speak(socket, protocol, Client { ip, secure: true }, server, patience, tools))
        }
    }
}

fn speak<S: Serve, T: Transport>(
    transport: T,
    protocol: Protocol,
    client: Client,
    server: Rc<S>,
    patience: Patience,
    tools: &Tools,
) -> Speaking<'_> {
    let connections = &tools.metrics.connections;
    let counted = Gauged::new(match protocol {
        Protocol::Http1 => &connections.http1,
        Protocol::Http2 => &connections.http2,
    });
    (counted, conn::serve(transport, protocol, client, server, patience, &tools.shutdown))
}

async fn plain(mut socket: Socket, peer: IpAddr, due: Instant, tools: &Tools) -> Option<(Socket, IpAddr, Protocol)> {
    let told = async {
        let ip = hear(&mut socket, peer, due, tools).await?;
        // Whoever says nothing, or not enough to tell what it speaks, is not waited for longer than for a head.
        let is_http2 = timeout_at(due, socket.speaks_http2()).await.ok()?.ok()?;
        Some((ip, if is_http2 { Protocol::Http2 } else { Protocol::Http1 }))
    };
    let (ip, protocol) = tokio::select! {
        told = told => told?,
        () = tools.shutdown.closing().cancelled() => return None,
    };
    Some((socket, ip, protocol))
}

async fn secure(
    mut socket: Socket,
    peer: IpAddr,
    due: Instant,
    tools: &Tools,
    handshakes: &Rc<Handshakes>,
    places: usize,
) -> Option<(Secure, IpAddr)> {
    let mut underway = handshakes.begin(places);
    let speaks = underway.speaks();
    let shaken = async {
        let ip = hear(&mut socket, peer, due, tools).await?;
        let shaking = async {
            socket.says_something().await;
            speaks();
            Secure::accept(socket, tools.certificates.config()).await
        };
        let result = match timeout_at(due, shaking).await {
            Ok(Ok(secure)) => {
                tools.metrics.handshake(if secure.is_resumed() { "resumed" } else { "ok" });
                return Some((secure, ip));
            }
            Ok(Err(Failure::Refused)) => "failed",
            Ok(Err(Failure::Left)) => "left",
            Err(_) => "timeout",
        };
        tools.metrics.handshake(result);
        None
    };
    let result = tokio::select! {
        shaken = shaken => return shaken,
        () = underway.displaced() => "displaced",
        () = tools.shutdown.closing().cancelled() => "drained",
    };
    tools.metrics.handshake(result);
    None
}

async fn hear(socket: &mut Socket, peer: IpAddr, due: Instant, tools: &Tools) -> Option<IpAddr> {
    match tools.introductions.hear(socket, peer, due).await {
        Ok(ip) => Some(ip),
        Err(refused) => {
            if let Some(reason) = refused.reason() {
                tracing::debug!(%peer, reason, "no PROXY header");
                tools.metrics.proxy_header_refused(reason);
            }
            None
        }
    }
}
