//! What listens on a machine on which somebody browses: web pages can have names of their own that lead here.

use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::playground_support::{Sandbox, client, program::Program};

/// A program, what talks to its doors under any name, and a sandbox.
struct Doors {
    program: Program,
    client: Client,
    sandbox: Sandbox,
}

impl Doors {
    async fn of(arguments: &[&str]) -> Self {
        let program = Program::start(arguments).await;
        let sandbox = program.api().sleeper("counter").await;
        Self { program, client: client(), sandbox }
    }

    /// The status of a call by this name.
    async fn ask(&self, door: &str, method: &str, path: &str, host: &str, fields: &[(&str, &str)]) -> u16 {
        let method: Method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("http://{}{path}", self.program.address(door)));
        request = request.header("Host", host).header("X-API-KEY", &self.program.api().key);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send().await.expect("an answer").status().as_u16()
    }

    /// To the proxy: by the name alone, and with the headers of the SDKs.
    async fn route(&self, host: &str) -> [u16; 2] {
        let fields = [("e2b-sandbox-id", &*self.sandbox.id), ("e2b-sandbox-port", "8000")];
        let host = host.replace("ID", &self.sandbox.id);
        [self.ask("proxy", "GET", "/", &host, &[]).await, self.ask("proxy", "GET", "/", &host, &fields).await]
    }
}

const FOREIGN: [&str; 3] = ["evil.example:3000", "localhost.evil.example", "10.0.0.1"];

#[tokio::test(flavor = "multi_thread")]
async fn api_and_admin_pages_answer_to_names_of_this_machine_only() {
    let doors = Doors::of(&[]).await;
    for (door, method, path) in [
        ("control API", "GET", "/sandboxes"),
        ("admin", "GET", "/config"),
        ("admin", "GET", "/nowhere"),
        ("admin", "PUT", "/wake"),
        ("health", "GET", "/metrics"),
    ] {
        for host in FOREIGN {
            assert_eq!(doors.ask(door, method, path, host, &[]).await, 403, "{door} {path} {host}");
        }
        for host in ["localhost:3000", "127.0.0.1", "[::1]:3004"] {
            assert_ne!(doors.ask(door, method, path, host, &[]).await, 403, "{door} {path} {host}");
        }
    }
    let answer = doors.client.get(format!("http://{}/config", doors.program.address("admin"))).send().await;
    assert_eq!(answer.expect("an answer").status(), 200);
    doors.program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_serves_its_own_names_only() {
    for (arguments, own) in [(&[][..], None), (&["--tls", "127.0.0.1:0", "--domain", "e2b.test"], Some("e2b.test"))] {
        let doors = Doors::of(arguments).await;
        for host in ["8000-ID.evil.example:3002", "sandbox.evil.example", "evil.example:3002", "8000-ID.localhost.evil"]
        {
            assert_eq!(doors.route(host).await, [421; 2], "{own:?} {host}");
        }
        for host in ["8000-ID.localhost:3002", "8000-ID.any.localhost"] {
            assert_eq!(doors.route(host).await, [200; 2], "{own:?} {host}");
        }
        for host in ["localhost:3002", "localhost:8000", "127.0.0.1:3002", "[::1]:3002", "sandbox.localhost:3002"] {
            assert_eq!(doors.route(host).await, [400, 200], "{own:?} {host}");
        }
        let served = if own.is_some() { [[200; 2], [400, 200]] } else { [[421; 2]; 2] };
        let told = [doors.route("8000-ID.e2b.test").await, doors.route("sandbox.e2b.test").await];
        assert_eq!(told, served, "{own:?}");
        doors.program.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_somebody_brought_is_not_printed() {
    let key = "e2b_0123456789abcdef0123456789abcdef01234567";
    let mut command = crate::playground_support::program::command(&["--tls", "127.0.0.1:0"]);
    command.env("E2B_API_KEY", key);
    let program = Program::run(command).await;
    assert!(!program.banner.contains(key) && program.banner.contains("your E2B_API_KEY"), "{}", program.banner);
    let api = program.api_with(key);
    assert_eq!(api.get("/sandboxes").await.body, json!([]));
    assert_eq!(api.call_with("GET", "/sandboxes", Value::Null, &[("X-API-KEY", "e2b_0")]).await.status, 401);
    program.end().await;
}
