//! The shortest way through the house.

mod support;

use support::{Proxy, Server, answer};

#[tokio::test]
async fn a_request_finds_its_sandbox_and_an_unknown_one_is_told() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Proxy::start(&format!(
        "server.workers = 1\ncatalog = {{ kind = \"static\", static = {{ abc = \"127.0.0.1\" }} }}\nupstream.address = \"{{node}}:{}\"",
        upstream.address.port()
    ));
    for _ in 0..3 {
        let answer = proxy.get(8000, "abc", "/x?y").await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    }
    assert_eq!((upstream.requests(), upstream.connections()), (3, 1), "one pooled connection serves all");
    assert_eq!(proxy.get(8000, "nobody", "/").await.error(), "sandbox_not_found");
    assert_eq!(proxy.metric("client_proxy_requests_total").await, 4.0);
    proxy.is_idle().await;
}
