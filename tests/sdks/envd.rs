//! As much of a sandbox and of E2B's API as the SDKs must meet.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::support::{Server, answer, json as json_answer};

/// What the API gives out for every sandbox.
pub(crate) const TOKEN: &str = "t0ken-of-the-sdk";

/// What it gives out for this one's ports besides.
pub(crate) fn traffic_token(sandbox: &str) -> Option<&'static str> {
    (sandbox == "forged").then_some("t0ken-of-another")
}

/// An API that has every sandbox, and takes `connect` for no wake.
pub(crate) async fn api() -> Server {
    Server::start(async |request| {
        let path: Vec<_> = request.uri().path().split('/').collect();
        let ["", "v2", "sandboxes", id, "connect"] = path[..] else { return answer(500, "nobody expected this") };
        let sandbox = json!({ "templateID": "base", "sandboxID": id, "clientID": "c", "envdVersion": "0.6.7",
            "envdAccessToken": TOKEN, "trafficAccessToken": traffic_token(id) });
        json_answer(200, &sandbox)
    })
    .await
}

/// A sandbox that does what it is asked for.
pub(crate) async fn obliging(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let _ = body.collect().await;
    let entry = json!({ "name": "a", "type": "FILE_TYPE_FILE", "path": "/a" });
    match (head.method.as_str(), head.uri.path()) {
        ("GET", "/health") => answer(204, ""),
        ("GET", "/files") => answer(200, "hello"),
        ("POST", "/files") => json_answer(200, &json!([{ "name": "a", "type": "file", "path": "/a" }])),
        ("POST", "/filesystem.Filesystem/ListDir") => json_answer(200, &json!({ "entries": [entry] })),
        ("POST", "/filesystem.Filesystem/MakeDir" | "/filesystem.Filesystem/Stat") => {
            json_answer(200, &json!({ "entry": entry }))
        }
        ("POST", "/process.Process/SendSignal") => json_answer(200, &json!({})),
        ("POST", "/process.Process/Start") => {
            let events = [
                frame(0, &json!({ "event": { "start": { "pid": 5 } } })),
                frame(0, &json!({ "event": { "data": { "stdout": "aGVsbG8=" } } })),
                frame(0, &json!({ "event": { "end": { "exited": true, "status": "exit status 0" } } })),
                frame(2, &json!({})),
            ];
            let mut answer = answer(200, events.concat());
            answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/connect+json"));
            answer
        }
        ("POST", "/execute") => {
            let result = json!({ "type": "result", "text": "2", "is_main_result": true });
            answer(200, format!("{result}\n{}\n", json!({ "type": "number_of_executions", "execution_count": 1 })))
        }
        _ => answer(500, "nobody expected this"),
    }
}

fn frame(flags: u8, message: &Value) -> Vec<u8> {
    let message = message.to_string();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[flags], &length[..], message.as_bytes()].concat()
}
