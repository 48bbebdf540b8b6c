//! Clients that others wrote, from the command line: what each says of the proxy. Needs the programs `curl`,
//! `nghttp`, `h2load` and `openssl`.

mod curl;
mod load;
mod nghttp;
mod openssl;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
#[allow(dead_code, unreachable_pub, reason = "as in support")]
mod tls;
mod tools;

use http_body_util::BodyExt as _;
use support::{Proxy, Server, answer, wire::node_mode};
use tls::Authority;

/// A sandbox that tells what came, behind a proxy that also speaks TLS.
struct Stage {
    node: Server,
    authority: Authority,
    proxy: Proxy,
}

impl Stage {
    async fn new(lines: &str) -> Self {
        let (node, authority) = (counting().await, Authority::with_one());
        let proxy = Proxy::start(&node_mode(node.address, &format!("{lines}\n{}", authority.config(&["a"]))));
        Self { node, authority, proxy }
    }
}

/// Says how many bytes came, and by which method.
async fn counting() -> Server {
    Server::start(async |request| {
        let method = request.method().clone();
        let body = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
        answer(200, format!("{method} {body}"))
    })
    .await
}
