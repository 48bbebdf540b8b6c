//! A playground as a user starts it, and a client of the interpreter in one of its sandboxes, through the proxy.

use std::{fs, net::SocketAddr, path::PathBuf, process::Stdio};

use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    installed::{Installed, KERNEL},
    playground_support::{
        Api, Sandbox, processes_with,
        program::{Program, command},
        until,
    },
};

/// Ended when dropped; that nothing is left is seen by [`Stage::end`].
pub(crate) struct Stage {
    pub(crate) api: Api,
    pub(crate) proxy: SocketAddr,
    pub(crate) python: PathBuf,
    program: Program,
    /// Where the sandboxes' files are, and where it was started.
    pub(crate) folder: TempDir,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::with(Installed::get(&KERNEL).await.python).await
    }

    pub(crate) async fn with(python: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = command(&["--python", python.to_str().expect("text")]);
        command
            .env("CLIENT_PROXY__LOG__FILTER", "warn")
            .env("A_CLOUDS_KEY", "secret")
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .stderr(Stdio::inherit());
        let program = Program::run(command).await;
        Self { api: program.api(), proxy: program.address("proxy"), python, program, folder }
    }

    /// A sandbox with an interpreter, that traffic may wake.
    pub(crate) async fn interpreter(&self) -> Interpreter {
        let sandbox = self.api.sleeper("code-interpreter-v1").await;
        Interpreter { client: self.api.client.clone(), proxy: self.proxy, sandbox }
    }

    /// The same with variables for its programs.
    pub(crate) async fn interpreter_with(&self, variables: Value) -> Interpreter {
        let wanted = json!({ "templateID": "code-interpreter-v1", "envVars": variables });
        let sandbox = self.api.create(wanted).await;
        Interpreter { client: self.api.client.clone(), proxy: self.proxy, sandbox }
    }

    /// Ends it as Ctrl-C does; nothing of its sandboxes is left.
    pub(crate) async fn end(self, ids: &[&str]) {
        self.program.end().await;
        for id in ids {
            until("no process is left", async || processes_with(id).is_empty()).await;
        }
        until("no file is left", async || fs::read_dir(self.folder.path()).expect("a folder").next().is_none()).await;
    }
}

pub(crate) struct Interpreter {
    client: reqwest::Client,
    proxy: SocketAddr,
    pub(crate) sandbox: Sandbox,
}

impl Interpreter {
    /// A request without a token.
    pub(crate) fn bare(&self, method: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.proxy);
        let request = self.client.request(method.parse().expect("a method"), url);
        request.header("E2b-Sandbox-Id", &self.sandbox.id).header("E2b-Sandbox-Port", "49999")
    }

    /// As the SDKs do it: status, and the body as JSON or text.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let answer = self.bare(method, path).header("X-Access-Token", &self.sandbox.token).json(&body).send().await;
        let answer = answer.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) async fn context(&self, body: Value) -> String {
        let (status, context) = self.call("POST", "/contexts", body).await;
        assert_eq!(status, 200, "{context}");
        context["id"].as_str().expect("an id").to_owned()
    }

    /// The beginning of an execution.
    pub(crate) async fn start(&self, body: &Value) -> Events {
        let answer = self.bare("POST", "/execute").header("X-Access-Token", &self.sandbox.token).json(body).send();
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        Events { answer, unread: Vec::new() }
    }

    /// All that comes of the body's code.
    pub(crate) async fn execute(&self, body: Value) -> Execution {
        let mut events = self.start(&body).await;
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event);
        }
        assert_eq!(all.pop().expect("an end"), json!({ "type": "end_of_execution" }), "{all:?}");
        Execution(all)
    }

    fn file(&self, method: &str, path: &str) -> RequestBuilder {
        let request = self.client.request(method.parse().expect("a method"), self.sandbox.files(path));
        request.header("X-Access-Token", &self.sandbox.token)
    }

    /// By envd, as callers write files.
    pub(crate) async fn put(&self, path: &str, text: &'static str) {
        let sent = self.file("POST", path).header("Content-Type", "application/octet-stream").body(text).send().await;
        assert_eq!(sent.expect("an answer").status(), 200, "{path}");
    }

    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let answer = self.file("GET", path).send().await.expect("an answer");
        if answer.status() == 404 { None } else { Some(answer.text().await.expect("a body")) }
    }

    /// The same in the default context.
    pub(crate) async fn run(&self, code: &str) -> Execution {
        self.execute(json!({ "code": code })).await
    }
}

/// Events as they come.
pub(crate) struct Events {
    answer: Response,
    unread: Vec<u8>,
}

impl Events {
    pub(crate) async fn next(&mut self) -> Option<Value> {
        // Lines may be long, and the pieces that they come in small.
        let mut seen = 0;
        loop {
            if let Some(end) = self.unread[seen..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=seen + end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let Some(chunk) = self.answer.chunk().await.expect("a whole body") else {
                assert!(self.unread.is_empty(), "half a line");
                return None;
            };
            seen = self.unread.len();
            self.unread.extend_from_slice(&chunk);
        }
    }

    /// Reads up to an event of this type.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        while let Some(event) = self.next().await {
            if event["type"] == kind {
                return event;
            }
        }
        panic!("no {kind}");
    }
}

/// What came of some code.
#[derive(Debug)]
pub(crate) struct Execution(pub(crate) Vec<Value>);

impl Execution {
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        self.0.iter().filter(|event| event["type"] == kind).collect()
    }

    /// What was printed to one of the streams, together.
    pub(crate) fn printed(&self, stream: &str) -> String {
        self.all(stream).iter().map(|event| event["text"].as_str().expect("text")).collect()
    }

    /// The value of the last line, as text.
    pub(crate) fn text(&self) -> &str {
        let main = self.0.iter().find(|event| event["is_main_result"] == true);
        main.unwrap_or_else(|| panic!("no result: {self:?}"))["text"].as_str().expect("text")
    }

    /// The name of the error.
    pub(crate) fn error(&self) -> &str {
        let errors = self.all("error");
        assert_eq!(errors.len(), 1, "{self:?}");
        errors[0]["name"].as_str().expect("a name")
    }
}
