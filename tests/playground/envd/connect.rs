//! A client of Connect that shows every frame.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Buf as _, BufMut as _, BytesMut};
use reqwest::{Client, Response};
use serde_json::Value;

use crate::playground_support::Sandbox;

#[derive(Clone)]
pub(crate) struct Rpc {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Rpc {
    /// Straight to the sandbox.
    pub(crate) fn to(client: &Client, sandbox: &Sandbox) -> Self {
        let headers = vec![("connect-protocol-version", "1".to_owned()), ("x-access-token", sandbox.token.clone())];
        Self { client: client.clone(), base: format!("http://{}:49983", sandbox.ip), headers }
    }

    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.retain(|(known, _)| *known != name);
        other.headers.push((name, value.to_owned()));
        other
    }

    /// A `method` of `process.Process`, or `service/method`.
    async fn send(&self, method: &str, kind: &str, body: Vec<u8>) -> Response {
        let service = if method.contains('/') { "" } else { "process.Process/" };
        let mut request = self.client.post(format!("{}/{service}{method}", self.base));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.header("content-type", kind).body(body).send().await.expect("an answer")
    }

    pub(crate) async fn unary(&self, method: &str, message: &Value) -> (u16, Value) {
        let answer = self.send(method, "application/json", message.to_string().into_bytes()).await;
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON"))
    }

    /// A call that must succeed.
    pub(crate) async fn done(&self, method: &str, message: &Value) -> Value {
        let (status, answer) = self.unary(method, message).await;
        assert_eq!(status, 200, "{method}: {answer}");
        answer
    }

    pub(crate) async fn stream(&self, method: &str, messages: &[Value]) -> Frames {
        let body = messages.iter().flat_map(frame).collect();
        let answer = self.send(method, "application/connect+json", body).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "application/connect+json");
        Frames { answer, read: BytesMut::new() }
    }

    /// Starts a program: its stream, and its number.
    pub(crate) async fn start(&self, message: Value) -> (Frames, u64) {
        let mut frames = self.stream("Start", &[message]).await;
        let first = frames.event().await;
        let pid = first["start"]["pid"].as_u64().unwrap_or_else(|| panic!("no start: {first}"));
        (frames, pid)
    }

    /// Runs a program to its end.
    pub(crate) async fn run(&self, message: Value) -> Ended {
        self.start(message).await.0.ended().await
    }
}

fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut frame = vec![0];
    frame.put_u32(u32::try_from(text.len()).expect("short"));
    frame.put_slice(text.as_bytes());
    frame
}

pub(crate) struct Frames {
    answer: Response,
    read: BytesMut,
}

/// What a program said, how it ended, and how its stream did.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) pty: String,
    pub(crate) end: Value,
    pub(crate) last: Value,
}

impl Frames {
    /// Flags and message; an error where the connection breaks.
    pub(crate) async fn next(&mut self) -> Result<Option<(u8, Value)>, reqwest::Error> {
        loop {
            if let Some(mut head) = self.read.get(..5) {
                let (flags, length) = (head.get_u8(), head.get_u32() as usize);
                if self.read.len() >= 5 + length {
                    self.read.advance(5);
                    let message = self.read.split_to(length);
                    return Ok(Some((flags, serde_json::from_slice(&message).expect("JSON"))));
                }
            }
            let Some(chunk) = self.answer.chunk().await? else {
                assert!(self.read.is_empty(), "the stream ends within a frame");
                return Ok(None);
            };
            self.read.extend_from_slice(&chunk);
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Value {
        let (flags, mut message) = self.next().await.expect("a whole stream").expect("a frame");
        assert_eq!(flags, 0, "{message}");
        message["event"].take()
    }

    /// What the next event says on that channel.
    pub(crate) async fn said(&mut self, channel: &str) -> String {
        let event = self.event().await;
        text(&event["data"][channel]).unwrap_or_else(|| panic!("no {channel}: {event}"))
    }

    /// Reads until the channel has said that text.
    pub(crate) async fn until_said(&mut self, channel: &str, wanted: &str) -> String {
        let mut all = String::new();
        while !all.contains(wanted) {
            all += &self.said(channel).await;
        }
        all
    }

    pub(crate) async fn ended(&mut self) -> Ended {
        let mut ended = Ended::default();
        while let Some((flags, message)) = self.next().await.expect("a whole stream") {
            if flags == 2 {
                ended.last = message;
                assert_eq!(self.next().await.expect("a whole stream"), None, "nothing follows");
                return ended;
            }
            let event = &message["event"];
            assert_eq!(ended.end, Value::Null, "an event after the end: {event}");
            for (channel, all) in
                [("stdout", &mut ended.stdout), ("stderr", &mut ended.stderr), ("pty", &mut ended.pty)]
            {
                *all += &text(&event["data"][channel]).unwrap_or_default();
            }
            ended.end = event["end"].clone();
        }
        panic!("the stream ended without its last frame: {ended:?}")
    }
}

fn text(coded: &Value) -> Option<String> {
    Some(String::from_utf8_lossy(&STANDARD.decode(coded.as_str()?).expect("base64")).into_owned())
}
