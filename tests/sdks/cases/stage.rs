//! The proxies of all cases, and what they need.

use std::{collections::HashMap, future::pending, net::SocketAddr};

use http::Request;
use http_body_util::Full;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, task::JoinSet};

use super::{At, CASES, Case, ENVD, PORT};
use crate::{
    envd::{TOKEN, obliging, traffic_token},
    support::{
        Answer, DIRECT, Proxy, Server,
        control_plane::{ControlPlane, Step},
        eventually, listen, nodes_at, own_ip, send,
        wire::Raw,
    },
};

const FILE: &str = "/files?path=%2Fa";

/// No wait ends before the test.
const LONG: &str = "resume.hold_timeout = \"1h\"\nresume.call_timeout = \"1h\"\n";

/// The bound of one sandbox: more than the callers of both languages need of one that has no other guests.
const CONNECTIONS: usize = 4;

pub(crate) struct Stage {
    proxies: HashMap<At, Proxy>,
    /// The port of all nodes.
    port: u16,
    _held: Vec<Raw>,
    control: ControlPlane,
    _nodes: [Server; 3],
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
        let tied_envd = Server::on(&format!("{tied}:49983"), async |_| pending().await);

        let paused = |id: &str| {
            let sandbox = control.sandbox(id);
            sandbox.paused(&ip);
            sandbox
        };
        control.sandbox("unknown");
        for reason in ["killed", "expired"] {
            control.sandbox(reason).always_looks_up(Step::gone(reason));
        }
        control.sandbox("filesonly").always_looks_up(Step::gone("filesystem_only"));
        paused("asleep").set("/lifecycle", json!({ "autoResume": false, "onTimeout": "pause" }));
        // Nobody may wake these.
        for id in ["ignored", "suspended", "another"] {
            paused(id);
        }
        paused("secret").set("/envdAccessToken", json!("another"));
        for id in ["private", "forged"] {
            paused(id).set("/network", json!({ "allowPublicTraffic": false })).set("/trafficAccessToken", json!("own"));
        }
        paused("onetoomany").always_wakes(Step::error(429, "at most 20 sandboxes at once"));
        control.sandbox("untold").always_looks_up(Step::error(500, "the database is gone"));
        control.sandbox("lost").running(&own_ip());
        control.sandbox("rude").running(&rude);
        paused("pausing").always_wakes(Step::conflict());
        for id in ["wanted", "slow", "drowsy"] {
            paused(id).always_wakes(Step::Hangs);
        }
        control.sandbox("silent").running(&silent);
        control.sandbox("deaf").running(&own_ip());
        control.sandbox("tied").running(&tied);

        let fixed =
            [At::Plain, At::Full, At::Patient, At::Hasty, At::Direct, At::Suspended, At::Ignoring, At::Particular];
        let proxies: HashMap<_, _> = fixed.map(|at| (at, start(at, &control, port))).into();
        let mut held = Vec::new();
        let tying = [(At::Direct, "tied", ENVD); CONNECTIONS];
        let others = [
            (At::Full, "wanted", ENVD),
            (At::Patient, "slow", ENVD),
            // A wake goes on while somebody waits for it who shows the same credentials.
            (At::Patient, "pausing", ENVD),
            (At::Patient, "pausing", PORT),
        ];
        for (at, sandbox, port) in tying.into_iter().chain(others) {
            held.push(ask(&proxies[&at], sandbox, port).await);
        }
        proxies[&At::Full].metric_becomes("client_proxy_held_requests", 1.0).await;
        proxies[&At::Patient].metric_becomes("client_proxy_held_requests", 3.0).await;
        eventually("it is asked", async || tied_envd.requests() == CONNECTIONS).await;
        let off = Request::put("/wake").header("host", "admin").body(Full::from("{\"enabled\": false}"));
        let off = send(proxies[&At::Suspended].admin, off.expect("a request")).await;
        assert_eq!(off.json()["enabled"], false, "{off:?}");
        let stage = Self { proxies, port, _held: held, control, _nodes: [node, hangs, tied_envd], _tasks: tasks };
        // From then on, whoever waits for it has heard so.
        let transitions = CASES.iter().find(|case| case.name == "still_transitioning").expect("a case");
        for port in [ENVD, PORT] {
            let has_been_told = async || stage.answer(transitions, port).await.error() == transitions.code();
            eventually("the control plane has said that it is in between", has_been_told).await;
        }
        stage
    }

    /// Has the case's proxy asked, in circumstances in which this case is its answer.
    pub(crate) async fn meet<T>(&self, case: &Case, ask: impl AsyncFnOnce(SocketAddr) -> T) -> T {
        if let Some(proxy) = self.proxies.get(&case.at) {
            return ask(proxy.address).await;
        }
        let proxy = start(case.at, &self.control, self.port);
        if case.at == At::Frugal {
            let answer = proxy.get(ENVD, "onetoomany", FILE).await;
            assert_eq!(answer.error(), "team_limit", "one wake, if a vain one");
            let told = ask(proxy.address).await;
            proxy.app.drain().await;
            return told;
        }
        let ends = async {
            proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
            proxy.app.drain().await;
        };
        tokio::join!(ask(proxy.address), ends).0
    }

    /// What the proxy answers in this case to a request for this port that is as an SDK's.
    async fn answer(&self, case: &Case, port: u16) -> Answer {
        let mut request = Request::get(FILE)
            .header("host", case.host)
            .header("e2b-sandbox-id", case.sandbox)
            .header("e2b-sandbox-port", port)
            .header("x-access-token", TOKEN);
        if let Some(token) = traffic_token(case.sandbox).filter(|_| port != ENVD) {
            request = request.header("e2b-traffic-access-token", token);
        }
        for (name, value) in case.hop.lines().filter_map(|line| line.split_once(": ")) {
            request = request.header(name, value);
        }
        let request = request.body(Full::default()).expect("a request");
        self.meet(case, async |proxy| send(proxy, request).await).await
    }

    /// What it says there, having checked that it is this case.
    pub(crate) async fn words(&self, case: &Case, port: u16) -> String {
        let answer = self.answer(case, port).await;
        assert_eq!(answer.error(), case.code(), "{}: {}", case.name, answer.text());
        let json = answer.json();
        if let Some(reason) = case.name.strip_prefix("sandbox_not_found-") {
            assert_eq!(json["reason"], reason, "{}", answer.text());
        }
        json["message"].as_str().expect("a message").to_owned()
    }
}

fn start(at: At, control: &ControlPlane, port: u16) -> Proxy {
    let more = match at {
        At::Plain | At::Suspended => String::new(),
        At::Full => format!("resume.max_held = 1\nresume.max_held_per_sandbox = 1\n{LONG}"),
        At::Patient => LONG.into(),
        At::Hasty => "upstream.response_header_timeout = \"200ms\"\n".into(),
        At::Direct => format!("{DIRECT}upstream.max_connections_per_sandbox = {CONNECTIONS}\n"),
        At::Ignoring => "wake.ignore_paths = [\"/*\"]\n".into(),
        At::Particular => "server.domains = [\"example.test\"]\n".into(),
        At::Frugal => "wake.max_per_client_per_minute = 1\nshutdown.drain_delay = \"0s\"\n\
                       shutdown.drain_timeout = \"0s\"\n"
            .into(),
        At::Ending => format!("{LONG}shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"0s\"\n"),
    };
    let nodes = if at == At::Direct { String::new() } else { nodes_at(port) };
    Proxy::start(&control.config(&(nodes + &more)))
}

/// Asks for a file with an SDK's credentials, and does not wait for an answer.
async fn ask(proxy: &Proxy, sandbox: &str, port: u16) -> Raw {
    let mut client = Raw::connect(proxy.address).await;
    let host = format!("Host: {port}-{sandbox}.example.test\r\nX-Access-Token: {TOKEN}");
    client.write(format!("GET {FILE} HTTP/1.1\r\n{host}\r\n\r\n")).await;
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
