//! How long a client may take for its request's head, and between two requests.

mod support;

use std::time::Duration;

use support::{
    Proxy, REMEMBER, Raw, Server, answer,
    control_plane::{ControlPlane, Gate, Step},
    nodes_at,
};
use tokio::time::{Instant, sleep_until};

const LIMITS: &str = "server.header_read_timeout = \"500ms\"\nserver.idle_timeout = \"4s\"\n";
const HEAD: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(4);
const GET: &str = "GET / HTTP/1.1\r\nhost: 8000-abc.example.test\r\n\r\n";

async fn world() -> (ControlPlane, Server, Proxy) {
    let control = ControlPlane::start().await;
    control.sandbox("abc").running("127.0.0.1");
    let node = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Proxy::start(&control.config(&format!("{LIMITS}{REMEMBER}{}", nodes_at(node.address.port()))));
    (control, node, proxy)
}

async fn exchange(client: &mut Raw) {
    client.write(GET).await;
    assert!(client.read_until("hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

/// Waits for the proxy's end of the connection; how long that took since `start`.
async fn closed(client: &mut Raw, start: Instant) -> Duration {
    // What it says, if anything, is not of interest here.
    let _ = client.rest().await;
    start.elapsed()
}

#[tokio::test]
async fn whoever_says_nothing_after_the_accept_is_closed() {
    let (_control, _node, proxy) = world().await;
    let start = Instant::now();
    let mut client = Raw::connect(proxy.address).await;
    let after = closed(&mut client, start).await;
    assert!((HEAD..IDLE).contains(&after), "{after:?}");
    proxy.is_idle().await;
}

#[tokio::test]
async fn half_a_head_is_closed_on_any_request_of_a_connection() {
    let (_control, node, proxy) = world().await;
    for requests_before in [0, 1, 2] {
        let mut client = Raw::connect(proxy.address).await;
        for _ in 0..requests_before {
            exchange(&mut client).await;
        }
        let start = Instant::now();
        client.write(&GET[..20]).await;
        let after = closed(&mut client, start).await;
        assert!((HEAD..IDLE).contains(&after), "after {requests_before} requests: {after:?}");
    }
    assert_eq!(node.requests(), 3);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_head_that_drips_is_closed_all_the_same() {
    let (_control, node, proxy) = world().await;
    let client = Raw::connect(proxy.address).await;
    let (mut read, mut write) = client.0.into_split();
    let start = Instant::now();
    let drip = async {
        use tokio::io::AsyncWriteExt as _;
        for (byte, n) in GET.bytes().zip(1..) {
            sleep_until(start + n * HEAD / 5).await;
            if write.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let end = async {
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut Vec::new()).await;
        start.elapsed()
    };
    let after = tokio::select! {
        after = end => after,
        () = drip => panic!("a head of {} bytes was read to its end", GET.len()),
    };
    // Its last byte would come after five seconds.
    assert!(after >= HEAD, "{after:?}");
    assert_eq!(node.requests(), 0);
    proxy.is_idle().await;
}

#[tokio::test]
async fn the_head_s_limit_does_not_count_between_requests() {
    let (_control, node, proxy) = world().await;
    let mut client = Raw::connect(proxy.address).await;
    exchange(&mut client).await;
    for _ in 0..2 {
        // Quiet for twice as long as a head may take.
        sleep_until(Instant::now() + 2 * HEAD).await;
        exchange(&mut client).await;
    }
    assert_eq!((node.requests(), proxy.count("client_proxy_connections").await), (3, 1));
    drop(client);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_connection_that_is_idle_too_long_is_closed() {
    let (_control, _node, proxy) = world().await;
    let mut client = Raw::connect(proxy.address).await;
    let start = Instant::now();
    exchange(&mut client).await;
    let after = closed(&mut client, start).await;
    assert!(after >= IDLE, "{after:?}");
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_request_that_is_held_is_not_hurried() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let limits = "server.header_read_timeout = \"200ms\"\nserver.idle_timeout = \"300ms\"\n";
    let proxy = Proxy::start(&control.config(&format!("{limits}{REMEMBER}{}", nodes_at(node.address.port()))));
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut client = Raw::connect(proxy.address).await;
    client.write(GET).await;
    control.sandbox("abc").connects_become(1).await;
    // Longer than both limits together, and than the proxy's looking after its clients.
    sleep_until(Instant::now() + Duration::from_secs(1)).await;
    assert_eq!(proxy.count("client_proxy_held_requests").await, 1);
    gate.open();
    assert!(client.read_until("hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
    proxy.is_idle().await;
}
