//! The proxy's own errors, each with a sandbox that has it at every request.

use std::future::pending;

use serde_json::json;
use tokio::{io::AsyncReadExt as _, task::JoinSet};

use crate::{
    envd::obliging,
    support::{
        DIRECT, Proxy, Server,
        control_plane::{ControlPlane, Step},
        eventually, listen, nodes_at, own_ip,
        wire::Raw,
    },
    tap::Tap,
};

/// No wake and no answer that never comes is waited for longer.
const SHORT: &str = "resume.hold_timeout = \"700ms\"\nupstream.response_header_timeout = \"700ms\"\n";

const FILE: &str = "/files?path=%2Fa";

/// A sandbox whose requests all end in this error.
pub(crate) struct Case {
    /// The error's code; after a dash, what leads to it.
    pub(crate) name: &'static str,
    pub(crate) proxy: usize,
    pub(crate) sandbox: &'static str,
}

/// The proxies of all cases, and what they need.
pub(crate) struct Stage {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) cases: Vec<Case>,
    _held: [Raw; 2],
    _control: ControlPlane,
    _nodes: Vec<Server>,
    _tasks: JoinSet<()>,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let control = ControlPlane::start().await;
        let [ip, silent, rude, tied] = [(); 4].map(|()| own_ip());
        let node = Server::on(&format!("{ip}:0"), obliging);
        let port = node.address.port();
        let hangs = Server::on(&format!("{silent}:{port}"), async |_| pending().await);
        let mut tasks = JoinSet::new();
        tasks.spawn(hangs_up(format!("{rude}:{port}")));
        let slow_envd = Server::on(&format!("{tied}:49983"), async |_| pending().await);

        let paused = |id: &str| {
            let sandbox = control.sandbox(id);
            sandbox.paused(&ip);
            sandbox
        };
        control.sandbox("unknown");
        paused("asleep").set("/lifecycle", json!({ "autoResume": false, "onTimeout": "pause" }));
        paused("secret").set("/envdAccessToken", json!("another"));
        paused("onetoomany").always_wakes(Step::error(429, "at most 20 sandboxes at once"));
        control.sandbox("untold").always_looks_up(Step::error(500, "the database is gone"));
        control.sandbox("lost").running(&own_ip());
        control.sandbox("rude").running(&rude);
        control.sandbox("pausing").paused(&ip).always_wakes(Step::conflict());
        paused("slow").always_wakes(Step::Hangs);
        control.sandbox("silent").running(&silent);
        paused("wanted").always_wakes(Step::Hangs);
        control.sandbox("deaf").running(&own_ip());
        control.sandbox("tied").running(&tied);

        let nodes = nodes_at(port);
        let one_held = "resume.max_held = 1\nresume.max_held_per_sandbox = 1\nresume.hold_timeout = \"10m\"\n\
                        resume.call_timeout = \"10m\"\n";
        let direct = format!("{DIRECT}upstream.max_connections_per_sandbox = 1\n");
        let lines = ["", SHORT, one_held].map(|lines| format!("{nodes}{lines}"));
        let proxies: Vec<_> = lines.iter().chain([&direct]).map(|lines| Proxy::start(&control.config(lines))).collect();
        let held = [ask(&proxies[2], "wanted").await, ask(&proxies[3], "tied").await];
        proxies[2].metric_becomes("client_proxy_held_requests", 1.0).await;
        eventually("it is asked", async || slow_envd.requests() == 1).await;

        let case = |(name, proxy, sandbox)| Case { name, proxy, sandbox };
        let cases = [
            ("too_many_held", 2, "wanted"),
            ("sandbox_not_found-unknown", 0, "unknown"),
            ("sandbox_not_found-auto_resume_off", 0, "asleep"),
            ("access_denied", 0, "secret"),
            ("team_limit", 0, "onetoomany"),
            ("control_plane_unavailable", 0, "untold"),
            ("node_unavailable", 0, "lost"),
            ("upstream_failed", 0, "rude"),
            ("still_transitioning", 1, "pausing"),
            ("hold_timeout", 1, "slow"),
            ("upstream_timeout", 1, "silent"),
            ("port_closed", 3, "deaf"),
            ("too_many_connections", 3, "tied"),
        ];
        let nodes = vec![node, hangs, slow_envd];
        let cases = cases.map(case).into();
        Self { proxies, cases, _held: held, _control: control, _nodes: nodes, _tasks: tasks }
    }

    /// A line of one's own to each proxy.
    pub(crate) fn taps(&self) -> Vec<Tap> {
        self.proxies.iter().map(|proxy| Tap::on(proxy.address)).collect()
    }

    /// What the proxy says in this case, having checked that it is this case.
    pub(crate) async fn words(&self, case: &Case) -> String {
        let answer = self.proxies[case.proxy].get(49983, case.sandbox, FILE).await;
        assert_eq!(answer.error(), case.name.split('-').next().unwrap_or_default(), "{}", answer.text());
        answer.json()["message"].as_str().expect("a message").to_owned()
    }
}

/// Asks for a file, and does not wait for an answer.
async fn ask(proxy: &Proxy, sandbox: &str) -> Raw {
    let mut client = Raw::connect(proxy.address).await;
    client.write(format!("GET {FILE} HTTP/1.1\r\nHost: 49983-{sandbox}.example.test\r\n\r\n")).await;
    client
}

/// Takes requests, and hangs up.
async fn hangs_up(address: String) {
    let listener = listen(&address);
    loop {
        let Ok((mut socket, _)) = listener.accept().await else { return };
        let _ = socket.read(&mut [0; 8192]).await;
    }
}
