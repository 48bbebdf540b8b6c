//! The adapters against scripted control planes on real sockets.

mod calls;
mod grpc;
mod lookups;
mod scripted_http;
mod settings;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of it is of use here")]
mod tls;
mod wakes;

use std::time::Duration;

use client_proxy::{
    config,
    control::{RestCatalog, RestResumer, install_tls_provider},
    sandbox::ports::{Catalog as _, Located, Resumer as _, Sleep, Wake, WakeError},
    types::{Access, Credentials, Node, Placement, Port, SandboxId, Secret},
};
use scripted_http::{ScriptedHttp, Step};

const KEY: &str = "e2b_0123456789abcdef";
const GET: &str = "GET /sandboxes/abc";
const CONNECT: &str = "POST /sandboxes/abc/connect";
const RUNNING: &str = r#"{"sandboxID":"abc","state":"running","nodeIP":" 10.0.0.5 ",
    "startedAt":"2026-08-01T00:00:00Z","envdAccessToken":"envd-secret","trafficAccessToken":null}"#;
const PAUSED: &str = r#"{"sandboxID":"abc","state":"paused","lifecycle":{"autoResume":true},
    "envdAccessToken":"envd-secret"}"#;

fn id() -> SandboxId {
    SandboxId::new("abc").expect("an id")
}

fn url(text: &str) -> reqwest::Url {
    text.parse().expect("a URL")
}

fn catalog_at(text: &str) -> RestCatalog {
    install_tls_provider();
    RestCatalog::new(&config::RestCatalog {
        url: url(text),
        api_key: Secret::new(KEY),
        timeout: Duration::from_secs(5),
        node_pointer: "/nodeIP".into(),
    })
    .expect("a catalog")
}

fn resumer_at(text: &str) -> RestResumer {
    install_tls_provider();
    RestResumer::new(&config::RestResume {
        url: url(text),
        api_key: Secret::new(KEY),
        sandbox_timeout: Duration::from_mins(10),
        node_pointer: "/nodeIP".into(),
    })
    .expect("a resumer")
}

/// Asks a catalog once; the control plane plays this one step.
async fn locate(step: Step) -> Result<Located, String> {
    let server = ScriptedHttp::start([step]).await;
    let catalog = catalog_at(&format!("http://{}", server.address()));
    let located = catalog.locate(&id()).await;
    located.map_err(|error| error.to_string())
}

async fn detail(body: &str) -> Result<Located, String> {
    locate(Step::on(GET).json(200, body)).await
}

fn wake(sleep: impl Into<Option<Sleep>>, port: u16, traffic: Option<&str>, access: Option<&str>) -> Wake {
    Wake {
        id: id(),
        credentials: Credentials {
            port: Port::new(port).expect("a port"),
            traffic_token: traffic.map(Secret::new),
            access_token: access.map(Secret::new),
        },
        sleep: sleep.into(),
    }
}

/// A sleep that anybody may end.
fn open() -> Sleep {
    Sleep { barred: None, access: Some(Access::default()) }
}

async fn resume(steps: Vec<Step>, wake: Wake) -> Result<Placement, WakeError> {
    let server = ScriptedHttp::start(steps).await;
    let resumer = resumer_at(&format!("http://{}", server.address()));
    resumer.resume(&wake).await
}

fn running(located: Result<Located, String>) -> Placement {
    match located {
        Ok(Located::Running(placement)) => placement,
        other => panic!("running expected, {other:?} came"),
    }
}

fn asleep(located: Result<Located, String>) -> Sleep {
    match located {
        Ok(Located::Asleep(sleep)) => sleep,
        other => panic!("asleep expected, {other:?} came"),
    }
}

/// Node, execution, envd token, private, traffic token.
fn facts(placement: &Placement) -> (Option<&str>, Option<&str>, Option<String>, bool, Option<String>) {
    let access = placement.access.as_ref().expect("locks are told");
    let text = |token: &Option<Secret>| {
        let token = token.as_ref()?;
        Some(String::from_utf8_lossy(token.expose()).into_owned())
    };
    (
        placement.node.as_ref().map(Node::as_str),
        placement.execution.as_deref(),
        text(&access.envd_token),
        access.private,
        text(&access.traffic_token),
    )
}
