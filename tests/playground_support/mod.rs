//! What the playground's tests share: a playground in this process whose sandboxes run the real binary,
//! a client of its API, and waiting for conditions.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod program;

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use client_proxy::dev::{Options, Playground};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_client-proxy");

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

pub(crate) fn options(arguments: &[&str]) -> Options {
    let fixed = ["dev", "--api", "127.0.0.1:0", "--agent-program", PROGRAM];
    Line::parse_from(fixed.iter().chain(arguments)).options
}

pub(crate) fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().expect("a client")
}

pub(crate) struct Ground {
    pub(crate) playground: Playground,
    pub(crate) api: Api,
}

impl Ground {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let playground = Playground::start(&options(arguments)).await.expect("a playground");
        let api = Api {
            client: client(),
            base: format!("http://{}", playground.api_addr()),
            key: playground.api_key().to_owned(),
        };
        Self { playground, api }
    }
}

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) key: String,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// Status, and the word for programs.
    pub(crate) fn told(&self) -> (u16, &str) {
        (self.status.as_u16(), self.body["error_code"].as_str().unwrap_or(""))
    }

    /// Whether its words for people have these in them.
    pub(crate) fn says(&self, words: &str) -> bool {
        self.body["message"].as_str().is_some_and(|message| message.contains(words))
    }
}

impl Api {
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(method, path, body, &[]).await
    }

    pub(crate) async fn call_with(&self, method: &str, path: &str, body: Value, headers: &[(&str, &str)]) -> Answer {
        let method: Method = method.parse().expect("a method");
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if !headers.iter().any(|(name, _)| *name == "X-API-KEY") {
            request = request.header("X-API-KEY", &self.key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status(), answer.headers().clone());
        let bytes = answer.bytes().await.expect("a body");
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") };
        if status.is_client_error() || status.is_server_error() {
            assert_eq!(body["code"], status.as_u16(), "errors carry their status as a number");
            assert!(body["message"].is_string(), "errors carry a message");
        }
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str) -> Answer {
        self.call("POST", path, Value::Null).await
    }

    pub(crate) async fn create(&self, body: Value) -> Sandbox {
        let answer = self.call("POST", "/v2/sandboxes", body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let text = |name: &str| answer.body[name].as_str().unwrap_or_default().to_owned();
        let id = text("sandboxID");
        let detail = self.get(&format!("/sandboxes/{id}")).await.body;
        let ip = detail["nodeIP"].as_str().expect("a node").parse().expect("an address");
        Sandbox { api: self.clone(), token: text("envdAccessToken"), id, ip }
    }

    /// A sandbox of the template that traffic may wake.
    pub(crate) async fn sleeper(&self, template: &str) -> Sandbox {
        self.create(json!({
            "templateID": template,
            "autoPause": true,
            "autoResume": { "enabled": true },
        }))
        .await
    }
}

pub(crate) struct Sandbox {
    api: Api,
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) ip: Ipv4Addr,
}

impl Sandbox {
    pub(crate) async fn post(&self, what: &str) -> Answer {
        self.api.post(&format!("/sandboxes/{}/{what}", self.id)).await
    }

    pub(crate) async fn post_with(&self, what: &str, body: Value) -> Answer {
        self.api.call("POST", &format!("/sandboxes/{}/{what}", self.id), body).await
    }

    pub(crate) async fn wake(&self) -> Answer {
        let path = format!("/v2/sandboxes/{}/connect", self.id);
        let body = json!({ "timeout": 7 });
        self.api.call_with("POST", &path, body, &[("X-Client-Proxy-Wake", "1")]).await
    }

    pub(crate) async fn kill(&self) -> Answer {
        self.api.call("DELETE", &format!("/sandboxes/{}", self.id), Value::Null).await
    }

    pub(crate) async fn detail(&self) -> Answer {
        self.api.get(&format!("/sandboxes/{}", self.id)).await
    }

    pub(crate) async fn state(&self) -> String {
        self.detail().await.body["state"].as_str().unwrap_or("gone").to_owned()
    }

    /// Time to live in seconds, as told.
    pub(crate) async fn lifetime(&self) -> u64 {
        let detail = self.detail().await.body;
        let time = |name: &str| {
            let text = detail[name].as_str().expect("a time");
            humantime::parse_rfc3339(text).expect("RFC 3339")
        };
        time("endAt").duration_since(time("startedAt")).expect("in order").as_secs()
    }

    pub(crate) async fn inside(&self) -> Value {
        self.api.get(&format!("/playground/sandboxes/{}", self.id)).await.body
    }

    /// Where its files are on this machine.
    pub(crate) fn folder(&self) -> PathBuf {
        let all = fs::read_dir(std::env::temp_dir()).expect("a folder").flatten();
        let mut found = all.map(|entry| entry.path().join(&self.id)).filter(|folder| folder.exists());
        found.next().expect("its folder")
    }

    /// Number, name and state of every process.
    pub(crate) async fn processes(&self) -> Vec<(i32, String, String)> {
        let inside = self.inside().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = inside["processes"].as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|process| {
                let pid = process["pid"].as_i64().and_then(|pid| pid.try_into().ok());
                (pid.expect("a number"), text(&process["name"]), text(&process["state"]))
            })
            .collect()
    }

    pub(crate) async fn count(&self) -> u64 {
        let answer = self.api.client.get(format!("http://{}:8000/", self.ip)).send().await;
        let text = answer.expect("an answer").text().await.expect("a body");
        text.trim().parse().expect("a number")
    }

    pub(crate) fn files(&self, path: &str) -> String {
        format!("http://{}:49983/files?path={path}", self.ip)
    }
}

/// Polls until the condition holds; fails after ten seconds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The state letter of a process; `None` when it is gone.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Live processes whose environment or arguments hold the text.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let holds = |pid: i32, file: &str| {
        let all = fs::read(Path::new("/proc").join(pid.to_string()).join(file)).unwrap_or_default();
        String::from_utf8_lossy(&all).contains(text)
    };
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| state_of(*pid).is_some_and(|state| state != 'Z'))
        .filter(|pid| holds(*pid, "environ") || holds(*pid, "cmdline"))
        .collect()
}
