//! A playground and the proxy in front of it, as `client-proxy dev` has them, and envd's calls through both.

use std::net::SocketAddr;

use client_proxy::{
    app::{App, PlaygroundRules},
    config::{Config, Environment},
};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::{
    envd::connect::{self, Rpc},
    playground_support::{Ground, Sandbox},
};

pub(crate) struct House {
    pub(crate) ground: Ground,
    pub(crate) proxy: SocketAddr,
    _app: App,
}

impl House {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let free = ["--proxy", "127.0.0.1:0", "--health", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let ground = Ground::start(&[&free, arguments].concat()).await;
        let environment: Environment = [("CLIENT_PROXY__SHUTDOWN__DRAIN_TIMEOUT", "0s")].into_iter().collect();
        let config = ground.playground.proxy_config().expect("a configuration");
        let loaded = Config::load(config.as_bytes(), &environment).unwrap_or_else(|faults| panic!("{faults}"));
        let app = App::start(loaded, Some(PlaygroundRules::of(&ground.playground))).expect("a proxy");
        let proxy = app.addresses().proxy[0];
        Self { ground, proxy, _app: app }
    }

    pub(crate) async fn end(self) {
        self.ground.playground.shutdown().await;
    }

    /// A request to the sandbox's envd as SDKs send it: by headers, with the token.
    pub(crate) fn envd(&self, sandbox: &Sandbox, method: &str, path: &str) -> RequestBuilder {
        let method = method.parse().expect("a method");
        let request = self.ground.api.client.request(method, format!("http://{}{path}", self.proxy));
        let request = request.header("E2b-Sandbox-Id", &sandbox.id).header("E2b-Sandbox-Port", "49983");
        request.header("X-Access-Token", &sandbox.token)
    }

    /// The same as a browser sends it: by the host's name, with nothing but the URL.
    pub(crate) fn bare(&self, sandbox: &Sandbox, method: &str, path: &str) -> RequestBuilder {
        let method = method.parse().expect("a method");
        let request = self.ground.api.client.request(method, format!("http://{}{path}", self.proxy));
        request.header("Host", format!("49983-{}.localhost", sandbox.id))
    }

    pub(crate) async fn put(&self, sandbox: &Sandbox, path: &str, text: impl Into<reqwest::Body>) {
        let sent = self.envd(sandbox, "POST", &format!("/files?path={path}"));
        let sent = sent.header("Content-Type", "application/octet-stream").body(text).send().await;
        assert_eq!(sent.expect("an answer").status(), 200, "{path}");
    }

    pub(crate) async fn get(&self, sandbox: &Sandbox, path: &str) -> (u16, String) {
        told(self.envd(sandbox, "GET", &format!("/files?path={path}")).send().await.expect("an answer")).await
    }

    /// Connect's calls of it.
    fn rpc(&self, sandbox: &Sandbox) -> Rpc {
        let rpc = Rpc::to(&self.ground.api.client, sandbox);
        let mut rpc = rpc.with("e2b-sandbox-id", &sandbox.id).with("e2b-sandbox-port", "49983");
        rpc.base = format!("http://{}", self.proxy);
        rpc
    }

    /// A unary call of `filesystem.Filesystem`: the status, and the message or the error.
    pub(crate) async fn call(&self, sandbox: &Sandbox, name: &str, message: Value) -> (u16, Value) {
        self.rpc(sandbox).unary(&format!("filesystem.Filesystem/{name}"), &message).await
    }

    /// The same where it must go well.
    pub(crate) async fn ask(&self, sandbox: &Sandbox, name: &str, message: Value) -> Value {
        let (status, answer) = self.call(sandbox, name, message).await;
        assert_eq!(status, 200, "{name}: {answer}");
        answer
    }

    /// The same where it must not: Connect's word for why.
    pub(crate) async fn refused(&self, sandbox: &Sandbox, name: &str, message: Value) -> (u16, String) {
        let (status, answer) = self.call(sandbox, name, message).await;
        assert!(answer["message"].is_string(), "{name}: {answer}");
        (status, answer["code"].as_str().expect("a word").to_owned())
    }

    /// A call with many answers.
    pub(crate) async fn stream(&self, sandbox: &Sandbox, path: &str, message: &Value) -> Frames {
        let rpc = self.rpc(sandbox).with("keepalive-ping-interval", "1");
        Frames(rpc.stream(path.trim_start_matches('/'), std::slice::from_ref(message)).await)
    }

    /// Runs a shell's command in the sandbox, to its end.
    pub(crate) async fn run(&self, sandbox: &Sandbox, command: &str) {
        let start = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", command] } });
        let ended = self.rpc(sandbox).run(start).await;
        assert_eq!(ended.end["status"], "exit status 0", "{command}: {ended:?}");
    }
}

pub(crate) async fn told(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    if status >= 400 {
        let error: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(error["code"], status, "errors of plain HTTP carry their status as a number");
    }
    (status, text)
}

/// The answers of a stream that does not end.
pub(crate) struct Frames(connect::Frames);

impl Frames {
    /// The flags of the next frame and its message; fails at the end of the stream.
    pub(crate) async fn next(&mut self) -> (u8, Value) {
        self.0.next().await.expect("no reset").expect("not the end")
    }
}
