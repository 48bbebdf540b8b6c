//! E2B's own SDKs, unmodified: what they raise at this proxy's own errors, and what they do with the
//! playground. Needs the programs `python3`, with venv, `node` and `npm`, and at first the registries of both.

mod callers;
mod cases;
#[cfg(feature = "dev")]
mod domain;
mod envd;
#[path = "../support/installed.rs"]
mod installed;
mod names;
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

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    net::SocketAddr,
};

use callers::Caller;
use cases::{CASES, OPERATIONS, Stage, names, port_of};
use envd::{TOKEN, api, obliging};
use serde_json::{Value, json};
use support::{
    Proxy, Server,
    control_plane::{ControlPlane, Step},
    nodes_at,
};
use table::{Cell, Table};
use tap::Tap;

/// What an SDK makes of every case; `words` are what the proxy says there.
async fn told(mut caller: Caller, stage: &Stage, words: &HashMap<(&str, u16), String>) -> Vec<Cell> {
    let (language, mut taps, mut cells) = (caller.language, HashMap::<SocketAddr, Tap>::new(), Vec::new());
    for case in &CASES {
        for operation in case.operations {
            let (outcome, requests) = stage
                .meet(case, async |proxy| {
                    let tap = taps.entry(proxy).or_insert_with(|| Tap::on(proxy));
                    tap.adds(case.hop);
                    let url = format!("http://{}:{}", case.host, tap.address.port());
                    let outcome = caller.call(&url, case.sandbox, operation).await;
                    (outcome, tap.requests())
                })
                .await;
            let words = words[&(case.name, port_of(operation))].clone();
            cells.push(Cell { case: case.name, language, operation, outcome, requests, words });
        }
    }
    cells
}

#[tokio::test]
async fn an_sdk_raises_at_every_error_what_the_table_says() {
    let (api, stage) = (api().await, Stage::set().await);
    let mut words = HashMap::new();
    for case in &CASES {
        for port in case.operations.iter().map(|operation| port_of(operation)) {
            if let Entry::Vacant(entry) = words.entry((case.name, port)) {
                entry.insert(stage.words(case, port).await);
            }
        }
    }
    let [python, javascript] = Caller::all(api.address, &names()).await;
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
    for mut caller in Caller::all(api.address, &BTreeSet::new()).await {
        for operation in OPERATIONS {
            let id = format!("{}{operation}", caller.language).replace('_', "");
            let sandbox = control.sandbox(&id);
            sandbox.paused("127.0.0.1").set("/envdAccessToken", json!(TOKEN)).wakes([Step::Truly]);
            let outcome = caller.call(&format!("http://{}", tap.address), &id, operation).await;
            let expected: Value = match operation {
                "read" | "run" => json!("hello"),
                "write" => json!("/a"),
                "list" => json!(["a"]),
                "run_code" => json!("2"),
                _ => json!(true),
            };
            assert_eq!((&outcome.value, &outcome.error), (&expected, &vec![]), "{id}: {outcome:?}");
            assert_eq!((tap.requests().len(), sandbox.connects()), (1, 1), "{id}");
        }
    }
}
