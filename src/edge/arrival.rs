//! From an accepted socket to a connection that speaks HTTP: whom it is from, TLS, which HTTP. All of it within
//! the time for a head, and while the process takes connections.

use std::{
    net::{IpAddr, SocketAddr},
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

/// Serves it to its end, if it comes to HTTP at all. `places`: the worker's share of all connections.
pub(super) async fn serve<S: Serve>(
    arrival: Arrival,
    tools: &Tools,
    handshakes: &Rc<Handshakes>,
    places: usize,
    server: Rc<S>,
) {
    let Arrival { socket, peer, door, patience } = arrival;
    let counted = Gauged::new(&tools.metrics.connections.unknown);
    let (peer, due) = (peer.ip().to_canonical(), Instant::now() + patience.head);
    match door {
        Door::Plain => {
            // Boxed: what this takes is not to be carried as long as the connection lasts.
            if let Some((socket, ip, protocol)) = Box::pin(plain(socket, peer, due, tools)).await {
                let client = Client { ip, secure: false };
                speak(socket, protocol, client, server, patience, tools, counted).await;
            }
        }
        Door::Tls => {
            // All of it: no plain connection carries what TLS takes.
            let serving = Box::pin(async {
                if let Some((socket, ip)) = secure(socket, peer, due, tools, handshakes, places).await {
                    let (protocol, client) = (socket.protocol(), Client { ip, secure: true });
                    speak(socket, protocol, client, server, patience, tools, counted).await;
                }
            });
            serving.await;
        }
    }
}

async fn speak<S: Serve, T: Transport>(
    transport: T,
    protocol: Protocol,
    client: Client,
    server: Rc<S>,
    patience: Patience,
    tools: &Tools,
    counted: Gauged,
) {
    let connections = &tools.metrics.connections;
    let _counted = match protocol {
        Protocol::Http1 => Gauged::new(&connections.http1),
        Protocol::Http2 => Gauged::new(&connections.http2),
    };
    drop(counted);
    conn::serve(transport, protocol, client, server, patience, &tools.shutdown).await;
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
