//! How long a client may take for its request's head, and between two requests.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep_until},
};

use crate::support::{
    Proxy, REMEMBER, Raw, World,
    control_plane::{Gate, Step},
    wire::get,
};

const HEAD: Duration = Duration::from_millis(300);

/// Only the time for a head ends anything here: the other one is longer than any test waits.
async fn strict_on_heads() -> World {
    world("server.header_read_timeout = \"300ms\"\nserver.idle_timeout = \"60s\"\n").await
}

async fn world(limits: &str) -> World {
    let world = World::new(&format!("{limits}{REMEMBER}")).await;
    world.control.sandbox("abc").running("127.0.0.1");
    world
}

async fn exchange(client: &mut Raw) {
    client.write(get("/")).await;
    assert!(client.read_until("hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

/// Waits for the proxy's end of the connection; how long that took since `start`.
async fn closed(client: &mut Raw, start: Instant) -> Duration {
    client.is_left().await;
    start.elapsed()
}

/// The time that a client may take for a head passes.
async fn a_silent_client_is_closed(proxy: &Proxy) {
    Raw::connect(proxy.address).await.is_left().await;
}

#[tokio::test]
async fn whoever_says_nothing_after_the_accept_is_closed() {
    let world = strict_on_heads().await;
    let start = Instant::now();
    let mut client = Raw::connect(world.proxy.address).await;
    let after = closed(&mut client, start).await;
    assert!(after >= HEAD, "{after:?}");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn half_a_head_is_closed_on_any_request_of_a_connection() {
    let world = strict_on_heads().await;
    for requests_before in [0, 1, 2] {
        let mut client = Raw::connect(world.proxy.address).await;
        for _ in 0..requests_before {
            exchange(&mut client).await;
        }
        let start = Instant::now();
        client.write(&get("/")[..20]).await;
        let after = closed(&mut client, start).await;
        assert!(after >= HEAD, "after {requests_before} requests: {after:?}");
    }
    assert_eq!(world.node.requests(), 3);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_head_that_drips_is_closed_all_the_same() {
    let world = strict_on_heads().await;
    let client = Raw::connect(world.proxy.address).await;
    let (mut read, mut write) = client.0.into_split();
    let start = Instant::now();
    let head = get("/");
    let drip = async {
        for (byte, n) in head.bytes().zip(1..) {
            sleep_until(start + n * HEAD / 5).await;
            if write.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let end = async {
        let _ = read.read_to_end(&mut Vec::new()).await;
        start.elapsed()
    };
    let after = tokio::select! {
        after = end => after,
        // Its last byte would come after three seconds.
        () = drip => panic!("a head of {} bytes was read to its end", head.len()),
    };
    assert!(after >= HEAD, "{after:?}");
    assert_eq!(world.node.requests(), 0);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn the_head_s_limit_does_not_count_between_requests() {
    let world = strict_on_heads().await;
    let mut client = Raw::connect(world.proxy.address).await;
    exchange(&mut client).await;
    for _ in 0..2 {
        // It comes after the client's last byte: when it has been sent away, the client has been quiet longer.
        a_silent_client_is_closed(&world.proxy).await;
        exchange(&mut client).await;
    }
    assert_eq!((world.node.requests(), world.proxy.count("client_proxy_connections").await), (3, 1));
    drop(client);
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_connection_that_is_idle_too_long_is_closed() {
    let world = world("server.header_read_timeout = \"100ms\"\nserver.idle_timeout = \"600ms\"\n").await;
    let mut client = Raw::connect(world.proxy.address).await;
    let start = Instant::now();
    exchange(&mut client).await;
    let after = closed(&mut client, start).await;
    assert!(after >= Duration::from_millis(600), "{after:?}");
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn neither_limit_ends_a_request_that_is_held() {
    let world = world("server.header_read_timeout = \"200ms\"\nserver.idle_timeout = \"300ms\"\n").await;
    let gate = Gate::closed();
    let asleep = world.control.sandbox("asleep");
    asleep.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut client = Raw::connect(world.proxy.address).await;
    client.write(get("/").replace("-abc", "-asleep")).await;
    asleep.connects_become(1).await;
    // Others come after it, and both limits end them.
    a_silent_client_is_closed(&world.proxy).await;
    let mut idle = Raw::connect(world.proxy.address).await;
    exchange(&mut idle).await;
    idle.is_left().await;
    assert_eq!(world.proxy.count("client_proxy_held_requests").await, 1);
    gate.open();
    let answer = client.read_until("hello").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    world.proxy.is_idle().await;
}
