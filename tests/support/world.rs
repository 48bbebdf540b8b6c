//! The smallest world that has everything: a control plane, a node that has every sandbox, and a proxy.

use std::net::SocketAddr;

use http_body_util::Full;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Answer, Proxy, Server, answer, control_plane::ControlPlane, eventually, get, nodes_at, request, send};

/// A node that says hello, and a proxy that asks this control plane where sandboxes are.
pub struct World {
    pub control: ControlPlane,
    pub node: Server,
    pub proxy: Proxy,
}

impl World {
    /// `more` is the rest of the proxy's configuration.
    pub async fn new(more: &str) -> Self {
        let control = ControlPlane::start().await;
        let node = Server::start(async |_| answer(200, "hello")).await;
        let proxy = Proxy::start(&control.config(&format!("{}{more}", nodes_at(node.address.port()))));
        Self { control, node, proxy }
    }

    /// `GET /` of the sandbox.
    pub async fn get(&self, sandbox: &str) -> Answer {
        self.proxy.get(8000, sandbox, "/").await
    }

    /// So many of those, under way.
    pub fn crowd(&self, sandbox: &str, count: usize) -> JoinSet<Answer> {
        crowd(self.proxy.address, sandbox, "/", count)
    }
}

/// So many requests for the sandbox, under way, each on a connection of its own.
pub fn crowd(proxy: SocketAddr, sandbox: &str, path: &str, count: usize) -> JoinSet<Answer> {
    let ask = || send(proxy, request("GET", 8000, sandbox, path).body(Full::default()).expect("a request"));
    (0..count).map(|_| ask()).collect()
}

/// What they were all told.
pub async fn statuses(crowd: JoinSet<Answer>) -> Vec<u16> {
    crowd.join_all().await.iter().map(|answer| answer.status.as_u16()).collect()
}

/// Waits until what the proxy with this admin listener tells of the sandbox is so.
pub async fn view_becomes(admin: SocketAddr, sandbox: &str, so: impl Fn(&Value) -> bool) {
    let path = format!("/sandboxes/{sandbox}");
    eventually(&format!("{sandbox} is so"), async || {
        let view = get(admin, &path).await;
        view.status == 200 && so(&view.json())
    })
    .await;
}
