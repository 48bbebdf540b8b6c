//! envd as the SDKs meet it: Connect's frames over real sockets.

pub(crate) mod connect;
mod ends;
mod input;
mod joining;
mod programs;
mod sleeping;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use self::connect::Rpc;
use crate::playground_support::{Ground, Sandbox};

/// A playground with one sandbox of the template `base`, and a way to its envd.
async fn sandbox(body: Value) -> (Ground, Sandbox, Rpc) {
    let ground = Ground::start(&[]).await;
    let mut wanted = json!({ "templateID": "base" });
    wanted.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
    let sandbox = ground.api.create(wanted).await;
    let rpc = Rpc::to(&ground.api.client, &sandbox);
    (ground, sandbox, rpc)
}

/// What the SDKs send for `commands.run`.
pub(crate) fn bash(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/bash", "args": ["-l", "-c", script] }, "stdin": false })
}

fn of(pid: u64, rest: &Value) -> Value {
    let mut message = json!({ "process": { "pid": pid } });
    message.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
    message
}

/// The numbers, each on a line.
fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.fold(String::new(), |all, number| all + &number.to_string() + "\n")
}

fn base64(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}
