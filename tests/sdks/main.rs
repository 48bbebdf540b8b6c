//! E2B's own SDKs, unmodified: what they raise at this proxy's own errors, and what they do with the
//! playground. Needs the programs `python3`, with venv, `node` and `npm`, and at first the registries of both.

mod callers;
mod cases;
#[cfg(feature = "dev")]
mod domain;
mod envd;
#[path = "../support/installed.rs"]
mod installed;
#[cfg(feature = "dev")]
mod playground;
#[cfg(feature = "dev")]
#[path = "../playground_support/mod.rs"]
mod playground_support;
#[cfg(feature = "dev")]
mod run;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tap;
#[cfg(feature = "dev")]
mod work;

use std::collections::HashMap;

use callers::Caller;
use cases::Stage;
use envd::{TOKEN, api, obliging};
use serde_json::{Value, json};
use support::{
    Proxy, Server,
    control_plane::{ControlPlane, Step},
    nodes_at,
};
use table::{Cell, Table};
use tap::Tap;

/// What is done with a sandbox: two plain requests, four Connect calls, a Connect stream, and a probe.
const OPERATIONS: [&str; 8] = ["read", "write", "list", "make_dir", "exists", "kill", "run", "is_running"];

/// What an SDK makes of every case; `words` are what the proxy says there.
async fn told(mut caller: Caller, stage: &Stage, words: &HashMap<&str, String>) -> Vec<Cell> {
    let (language, taps, mut cells) = (caller.language, stage.taps(), Vec::new());
    for case in &stage.cases {
        for operation in OPERATIONS {
            let tap = &taps[case.proxy];
            let outcome = caller.call(tap, case.sandbox, operation).await;
            let words = words[case.name].clone();
            cells.push(Cell { case: case.name, language, operation, outcome, requests: tap.requests(), words });
        }
    }
    cells
}

#[tokio::test]
async fn an_sdk_raises_at_every_error_what_the_table_says() {
    let (api, stage) = (api().await, Stage::set().await);
    let mut words = HashMap::new();
    for case in &stage.cases {
        words.insert(case.name, stage.words(case).await);
    }
    let [python, javascript] = Caller::all(api.address).await;
    let (python, javascript) = tokio::join!(told(python, &stage, &words), told(javascript, &stage, &words));
    let table = Table(python.into_iter().chain(javascript).collect());
    table.is_as_expected();
    table.lies_only_where_it_must();
}

#[tokio::test]
async fn an_sdk_notices_nothing_of_a_wake_whatever_it_does() {
    let (api, control, node) = (api().await, ControlPlane::start().await, Server::start(obliging).await);
    let proxy = Proxy::start(&control.config(&nodes_at(node.address.port())));
    let tap = Tap::on(proxy.address);
    for mut caller in Caller::all(api.address).await {
        for operation in OPERATIONS {
            let id = format!("{}{operation}", caller.language).replace('_', "");
            let sandbox = control.sandbox(&id);
            sandbox.paused("127.0.0.1").set("/envdAccessToken", json!(TOKEN)).wakes([Step::Truly]);
            let outcome = caller.call(&tap, &id, operation).await;
            let expected: Value = match operation {
                "read" | "run" => json!("hello"),
                "write" => json!("/a"),
                "list" => json!(["a"]),
                _ => json!(true),
            };
            assert_eq!((&outcome.value, &outcome.error), (&expected, &vec![]), "{id}: {outcome:?}");
            assert_eq!((tap.requests().len(), sandbox.connects()), (1, 1), "{id}");
        }
    }
}
