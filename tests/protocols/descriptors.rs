//! More requests than there are descriptors for: over HTTP/2, a few clients can have them.

use tokio::task::JoinSet;

use crate::support::{
    Server,
    binary::Binary,
    control_plane::Gate,
    count, eventually, get,
    http2::{Http2, full, request},
    wire::node_mode,
};

#[tokio::test]
async fn beyond_the_descriptors_requests_wait_and_are_told_so_and_all_else_goes_on() {
    let gate = Gate::closed();
    let node = Server::gated(&gate).await;
    let config = node_mode(node.address, "server.max_connections = 100");
    let proxy = Binary::start_after("ulimit -n 900", &config).await;
    // 900, without those for other things, and without an eighth for clients.
    let most = (900 - 768) / 8 * 7;
    let mut asked = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = Http2::connect(proxy.address).await;
        for _ in 0..100 {
            let client = client.clone();
            asked.spawn(async move { client.send(request("GET", "abc", "/slow", full(""))).await });
        }
        clients.push(client);
    }
    // Those that found no room are told, while the others are still at work.
    let mut refused = 0;
    while refused < 300 - most {
        let answer = asked.join_next().await.expect("more").expect("no panic");
        assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
        refused += 1;
    }
    eventually("all that found room are asked", async || node.requests() == most).await;
    assert_eq!(count(proxy.health, "client_proxy_upstream_connections").await, most);
    let newcomer = Http2::connect(proxy.address).await;
    // It waits for a connection that comes back, and has it.
    let (waited, ()) = tokio::join!(newcomer.get("abc", "/quick"), async {
        eventually("one more is asked", async || count(proxy.health, "client_proxy_connections").await == 4).await;
        gate.open();
    });
    assert_eq!((waited.status.as_u16(), waited.text()), (200, "hello".into()));
    for answer in asked.join_all().await {
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    }
    assert_eq!(get(proxy.health, "/healthz/live").await.status, 200);
}
