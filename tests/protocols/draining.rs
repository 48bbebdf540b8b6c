//! SIGTERM with tunnels and streams open.

use rustix::process::Signal;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    frames::{Fate, Frames},
    support::{
        self, PATIENCE, REMEMBER, Server, answer,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, eventually, get,
        http2::{Http2, full, request},
        nodes_at,
        wire::{HOST, node_mode},
    },
    websocket::{Echo, echoes, open, open_over},
};

#[tokio::test]
async fn tunnels_live_until_the_end_of_the_drain_and_not_longer() {
    support::many_descriptors();
    let echo = Echo::start();
    let config = node_mode(echo.address, "shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"3s\"");
    let mut proxy = Binary::start(&config).await;
    let mut sockets = Vec::new();
    for _ in 0..250 {
        sockets.push(open(proxy.address, "abc", &[]).await.expect("a socket"));
    }
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (client, connection) = Http2::connect_tracked(proxy.address).await;
        for _ in 0..50 {
            streams.push(open_over(&client, "abc").await);
        }
        clients.push((client, connection));
    }
    eventually("they stand", async || count(proxy.health, "client_proxy_tunnels").await == 500).await;
    proxy.signal(Signal::TERM);
    eventually("it takes no more", async || tokio::net::TcpStream::connect(proxy.address).await.is_err()).await;
    for socket in &mut sockets {
        echoes(socket, 100).await;
    }
    for socket in &mut streams {
        echoes(socket, 100).await;
    }
    assert_eq!(count(proxy.health, "client_proxy_tunnels").await, 500);
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], false);
}

#[tokio::test]
async fn a_drain_ends_when_the_last_tunnel_does() {
    let echo = Echo::start();
    let config = node_mode(echo.address, "shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"1h\"");
    let mut proxy = Binary::start(&config).await;
    let socket = open(proxy.address, "abc", &[]).await.expect("a socket");
    let (client, _connection) = Http2::connect_tracked(proxy.address).await;
    let mut stream = open_over(&client, "abc").await;
    proxy.signal(Signal::TERM);
    eventually("it takes no more", async || tokio::net::TcpStream::connect(proxy.address).await.is_err()).await;
    echoes(&mut stream, 100).await;
    drop((socket, stream));
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], true);
}

#[tokio::test]
async fn every_stream_is_answered_and_its_client_told_to_go_elsewhere() {
    let (control, wake, work) = (ControlPlane::start().await, Gate::closed(), Gate::closed());
    control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly.after(&wake)]);
    control.sandbox("busy").running("127.0.0.1");
    let node = Server::gated(&work).await;
    let lines = format!("{}{REMEMBER}shutdown.drain_delay = \"1s\"\n", nodes_at(node.address.port()));
    let mut proxy = Binary::start(&control.config(&lines)).await;
    eventually("ready", async || get(proxy.health, "/healthz/ready").await.status == 200).await;
    let (idle, idle_ended) = Http2::connect_tracked(proxy.address).await;
    assert_eq!(idle.get("busy", "/").await.text(), "hello");
    let (client, ended) = Http2::connect_tracked(proxy.address).await;
    let mut asked = JoinSet::new();
    for (sandbox, path) in [("asleep", "/"), ("busy", "/slow")].into_iter().cycle().take(100) {
        let client = client.clone();
        asked.spawn(async move { client.send(request("GET", sandbox, path, full(""))).await });
    }
    eventually("half of them are held", async || count(proxy.health, "client_proxy_held_requests").await == 50).await;
    eventually("the others run", async || node.requests() == 51).await;
    proxy.signal(Signal::TERM);
    eventually("readiness fails", async || get(proxy.health, "/healthz/ready").await.status == 503).await;
    // An answer from now on says so by GOAWAY: the connection ends when its streams have.
    let (late, late_ended) = Http2::connect_tracked(proxy.address).await;
    assert_eq!(late.get("busy", "/").await.text(), "hello");
    timeout(PATIENCE, late_ended).await.expect("an end in time").expect("no panic").expect("by agreement");
    timeout(PATIENCE, idle_ended).await.expect("an end in time").expect("no panic").expect("by agreement");
    assert!(!ended.is_finished());
    wake.open();
    work.open();
    for answer in asked.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    }
    timeout(PATIENCE, ended).await.expect("an end in time").expect("no panic").expect("by agreement");
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], true);
}

#[tokio::test]
async fn streams_that_still_wait_at_the_end_are_told_so() {
    let control = ControlPlane::start().await;
    let never = Gate::closed();
    control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly.after(&never)]);
    let lines = format!("{}shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"300ms\"\n", nodes_at(9));
    let mut proxy = Binary::start(&control.config(&lines)).await;
    let client = Http2::connect(proxy.address).await;
    let mut asked = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        asked.spawn(async move { client.send(request("GET", "asleep", "/", full(""))).await });
    }
    eventually("they are held", async || count(proxy.health, "client_proxy_held_requests").await == 20).await;
    proxy.signal(Signal::TERM);
    for answer in asked.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.error()), (503, "draining".into()));
        assert_eq!((answer.header("connection"), answer.header("retry-after").is_empty()), ("", false));
    }
    assert_eq!(proxy.end().await.code(), Some(0));
}

/// All of it at once: sockets, held requests, streams that run, and a load that goes on.
#[tokio::test]
async fn under_load_with_sockets_and_held_requests_nothing_fails() {
    support::many_descriptors();
    let (control, wake, echo) = (ControlPlane::start().await, Gate::closed(), Echo::start());
    // One port for all nodes: that of the application with the sockets, at another address.
    let node = Server::on(&format!("127.0.0.2:{}", echo.address.port()), async |_| answer(200, "hello"));
    control.sandbox("sockets").running("127.0.0.1");
    control.sandbox("busy").running("127.0.0.2");
    control.sandbox("asleep").paused("127.0.0.2").wakes([Step::Truly.after(&wake)]);
    let lines = format!(
        "{}{REMEMBER}shutdown.drain_delay = \"2s\"\nshutdown.drain_timeout = \"3s\"\n",
        nodes_at(echo.address.port())
    );
    let mut proxy = Binary::start(&control.config(&lines)).await;
    eventually("ready", async || get(proxy.health, "/healthz/ready").await.status == 200).await;
    let mut sockets = Vec::new();
    let mut streams = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..5 {
        let client = Http2::connect(proxy.address).await;
        for _ in 0..50 {
            sockets.push(open(proxy.address, "sockets", &[]).await.expect("a socket"));
            streams.push(open_over(&client, "sockets").await);
        }
        clients.push(client);
    }
    let mut held = support::crowd(proxy.address, "asleep", "/", 250);
    for client in &clients {
        for _ in 0..50 {
            let client = client.clone();
            held.spawn(async move { client.send(request("GET", "asleep", "/", full(""))).await });
        }
    }
    eventually("500 are held", async || count(proxy.health, "client_proxy_held_requests").await == 500).await;
    assert_eq!(count(proxy.health, "client_proxy_tunnels").await, 500);

    // A load from clients that connect again wherever they are told to go away, as those of a balancer that has
    // not yet seen that readiness fails.
    let mut load = JoinSet::new();
    for _ in 0..8 {
        let address = proxy.address;
        load.spawn(async move {
            let mut answered = 0;
            for _ in 0..5 {
                let client = Http2::connect(address).await;
                loop {
                    match client.begin(request("GET", "busy", "/", full(""))).await {
                        Ok(answer) => assert_eq!(answer.status(), 200),
                        // Not begun: the connection has said GOAWAY, and takes no more.
                        Err(error) => {
                            assert!(error.is_canceled() || is_goaway(&error), "{error:?}");
                            break;
                        }
                    }
                    answered += 1;
                }
            }
            answered
        });
    }
    eventually("the load runs", async || node.requests() > 100).await;
    proxy.signal(Signal::TERM);
    for answered in load.join_all().await {
        assert!(answered >= 5, "at least one on each connection: {answered}");
    }
    eventually("it takes no more", async || tokio::net::TcpStream::connect(proxy.address).await.is_err()).await;
    wake.open();
    for answer in held.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    }
    for socket in &mut sockets {
        echoes(socket, 100).await;
    }
    for socket in &mut streams {
        echoes(socket, 100).await;
    }
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], false, "the sockets were cut");
}

/// Whether a request was refused because its connection goes away: nothing of it was seen (RFC 9113 §6.8).
fn is_goaway(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    h2.is_some_and(|error| error.is_go_away() && error.is_remote())
}

#[tokio::test]
async fn an_idle_client_that_does_not_answer_is_not_waited_for() {
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = node_mode(node.address, "shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"1h\"");
    let mut proxy = Binary::start(&config).await;
    let mut client = Frames::connect(proxy.address).await;
    client.get(1, HOST, "/").await;
    assert_eq!(client.fate(1).await, Fate::Answer(200));
    // It hears of the end, and answers neither the PING of the first GOAWAY nor the end itself.
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], true);
}
