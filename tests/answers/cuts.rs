//! Connect streams of envd's that break off: how they end for the client, and that nobody is woken by it.

use serde_json::{Value, json};

use crate::{
    asking::Over,
    envd::{Cut, Envd},
    reader::{CONNECT, Client, Read},
    support::{
        Proxy,
        control_plane::{ControlPlane, Gate, Sandbox, Step},
        eventually, nodes_at,
        wire::Node,
    },
};

/// One message.
fn message(flags: u8, length: usize) -> Vec<u8> {
    let head = u32::try_from(length).expect("a length").to_be_bytes();
    [&[flags], &head[..], &vec![b'x'; length]].concat()
}

/// What the control plane says when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Paused,
    Killed,
    /// Running, in another life.
    Reborn,
    Running,
    Nothing,
}

impl Says {
    fn set(self, sandbox: &Sandbox) {
        match self {
            Self::Paused => drop(sandbox.paused("127.0.0.1").clone()),
            Self::Killed => drop(sandbox.killed().clone()),
            Self::Reborn => drop(sandbox.running("127.0.0.1").clone()),
            Self::Running => {}
            Self::Nothing => drop(sandbox.always_looks_up(Step::Garbage).clone()),
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Paused | Self::Killed | Self::Reborn)
    }
}

struct Stage {
    control: ControlPlane,
    node: Node,
    proxy: Proxy,
    http2: bool,
}

impl Stage {
    async fn new(http2: bool) -> Self {
        let (control, node) = (ControlPlane::start().await, Node::start().await);
        let protocol = if http2 { "h2c" } else { "http1" };
        // What was known is not served against an error: a stream must not depend on it either.
        let lines = format!("{}upstream.protocol = \"{protocol}\"\n", nodes_at(node.address.port()));
        let proxy = Proxy::start(&control.config(&lines));
        Self { control, node, proxy, http2 }
    }

    /// What the client reads of a stream that says this, the last part unfinished, and is then cut.
    async fn plays(&self, over: Over, whole: &[u8], part: &[u8], cut: Cut, says: Says) -> Read {
        let sandbox = self.control.sandbox("abc");
        sandbox.always_looks_up(Step::Truly).running("127.0.0.1");
        let forget = http::Request::delete("/sandboxes/abc").header("host", "admin");
        crate::support::send(self.proxy.admin, forget.body(crate::asking::bytes("")).expect("a request")).await;
        let envd = Envd::accept(&self.node, self.http2, CONNECT);
        let (mut client, mut envd) = Client::call(self.proxy.address, over, 49983, envd).await;
        envd.say(whole).await;
        let mut read = client.has(whole.len()).await;
        assert_eq!(read, whole);
        let before = sandbox.lookups();
        says.set(&sandbox);
        if !part.is_empty() {
            envd.say(part).await;
            envd.is_heard().await;
        }
        let left = envd.cut(cut);
        let (rest, ended) = client.rest().await;
        drop(left);
        self.proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
        read.extend(rest);
        assert!(sandbox.lookups() <= before + 1, "one lookup: {}", sandbox.lookups() - before);
        assert_eq!(sandbox.connects(), 0);
        (read, ended)
    }
}

/// Whether it ends with our own last message, behind `before`.
fn ends_with_ours((read, ended): &Read, before: &[u8]) -> bool {
    assert!(read.starts_with(before), "{} bytes", read.len());
    let end = &read[before.len()..];
    if end.first() != Some(&2) {
        return false;
    }
    assert_eq!(u32::from_be_bytes(end[1..5].try_into().expect("a length")) as usize, end.len() - 5);
    let error: Value = serde_json::from_slice(&end[5..]).expect("JSON");
    let message = error["error"]["message"].as_str().expect("words");
    assert!(message.contains("was not found"), "{message}");
    assert_eq!(error, json!({ "error": { "code": "unavailable", "message": message, "error": "sandbox_not_found" } }));
    assert!(*ended, "and ends well");
    true
}

async fn every_end(http2: bool) {
    let stage = Stage::new(http2).await;
    let whole = [message(0, 0), message(0, 300), message(1, 70_000)].concat();
    let cuts = if http2 { &[Cut::Fin, Cut::Rst, Cut::Stream][..] } else { &[Cut::Fin, Cut::Rst] };
    for over in [Over::Http1, Over::Http2] {
        for cut in cuts {
            for says in [Says::Paused, Says::Killed, Says::Reborn, Says::Running, Says::Nothing] {
                for part in [&[][..], &[0, 0, 0], &message(0, 300)[..100]] {
                    let about = format!("{over:?} {cut:?} {says:?} {} bytes", part.len());
                    let read = stage.plays(over, &whole, part, *cut, says).await;
                    assert_eq!(ends_with_ours(&read, &whole), says.is_over(), "{about}");
                    if !says.is_over() {
                        // The proxy had read it: not even a reset takes it away.
                        assert_eq!(&read.0[whole.len()..], part, "{about}");
                        assert!(!read.1, "{about}: it breaks off");
                    }
                }
            }
        }
    }
    stage.proxy.is_idle().await;
}

#[tokio::test]
async fn a_stream_over_http1_ends_in_an_error_only_where_its_sandbox_is_gone() {
    every_end(false).await;
}

#[tokio::test]
async fn a_stream_over_http2_ends_in_an_error_only_where_its_sandbox_is_gone() {
    every_end(true).await;
}

#[tokio::test]
async fn inside_a_large_message_and_behind_its_own_end_a_stream_is_cut_as_it_was() {
    for http2 in [false, true] {
        let stage = Stage::new(http2).await;
        let own_end = [message(0, 10), message(2, 2)].concat();
        let large = &message(0, 200_000)[..100_000];
        for over in [Over::Http1, Over::Http2] {
            for said in [large, &own_end] {
                let (read, ended) = stage.plays(over, said, &[], Cut::Fin, Says::Paused).await;
                assert!(read == said && !ended, "{over:?} {http2}: {} bytes, {ended}", read.len());
            }
        }
    }
}

#[tokio::test]
async fn a_stream_that_ends_well_passes_as_it_is() {
    for http2 in [false, true] {
        for over in [Over::Http1, Over::Http2] {
            for said in [[message(0, 9), message(2, 2)].concat(), message(0, 9), vec![0, 0, 0], Vec::new()] {
                let stage = Stage::new(http2).await;
                stage.control.sandbox("abc").running("127.0.0.1");
                let envd = Envd::accept(&stage.node, http2, CONNECT);
                let (client, mut envd) = Client::call(stage.proxy.address, over, 49983, envd).await;
                if !said.is_empty() {
                    envd.say(&said).await;
                }
                envd.finish().await;
                let read = client.rest().await;
                assert_eq!(read, (said.clone(), true), "{over:?} {http2}");
            }
        }
    }
}

#[tokio::test]
async fn another_port_or_another_type_is_cut_as_it_was() {
    let stage = Stage::new(false).await;
    let sandbox = stage.control.sandbox("abc");
    let said = message(0, 50);
    for over in [Over::Http1, Over::Http2] {
        for (port, content_type) in [(8000, CONNECT), (49983, "application/json"), (49983, "application/grpc-web")] {
            sandbox.running("127.0.0.1");
            let envd = Envd::accept(&stage.node, false, content_type);
            let (mut client, mut envd) = Client::call(stage.proxy.address, over, port, envd).await;
            envd.say(&said).await;
            assert_eq!(client.has(said.len()).await, said);
            let lookups = sandbox.lookups();
            sandbox.paused("127.0.0.1");
            drop(envd.cut(Cut::Fin));
            let read = client.rest().await;
            assert_eq!(read, (Vec::new(), false), "{over:?} {port} {content_type}");
            assert_eq!((sandbox.lookups(), sandbox.connects()), (lookups, 0), "nobody asks");
        }
    }
}

/// All streams of a sandbox break off at its pause.
#[tokio::test]
async fn many_streams_cut_at_once_cost_few_lookups_and_all_end_in_the_error() {
    let stage = Stage::new(false).await;
    let sandbox = stage.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let mut open = Vec::new();
    for _ in 0..10 {
        let envd = Envd::accept(&stage.node, false, CONNECT);
        open.push(Client::call(stage.proxy.address, Over::Http1, 49983, envd).await);
    }
    let before = sandbox.lookups();
    sandbox.paused("127.0.0.1");
    let mut clients = Vec::new();
    for (client, envd) in open {
        drop(envd.cut(Cut::Fin));
        clients.push(client.rest());
    }
    for read in futures_util::future::join_all(clients).await {
        assert!(ends_with_ours(&read, &[]));
    }
    // An answer that is older than another cut is asked for again, three times at most.
    assert!((1..=4).contains(&(sandbox.lookups() - before)), "{} lookups", sandbox.lookups() - before);
    assert_eq!(sandbox.connects(), 0);
    stage.proxy.is_idle().await;
}

/// Nobody waits for ever for a catalog that hangs, and nothing is made up.
#[tokio::test]
async fn while_the_catalog_hangs_a_stream_is_cut_as_it_was() {
    let (control, node) = (ControlPlane::start().await, Node::start().await);
    let lines = format!("{}catalog.rest.timeout = \"300ms\"\n", nodes_at(node.address.port()));
    let proxy = Proxy::start(&control.config(&lines));
    let sandbox = control.sandbox("abc");
    sandbox.running("127.0.0.1");
    for over in [Over::Http1, Over::Http2] {
        let envd = Envd::accept(&node, false, CONNECT);
        let (mut client, mut envd) = Client::call(proxy.address, over, 49983, envd).await;
        envd.say(&message(0, 5)).await;
        client.has(10).await;
        sandbox.always_looks_up(Step::Hangs);
        drop(envd.cut(Cut::Fin));
        assert_eq!(client.rest().await, (Vec::new(), false));
        sandbox.always_looks_up(Step::Truly);
    }
    assert_eq!(sandbox.connects(), 0);
    proxy.is_idle().await;
}

/// Others woke it meanwhile: the stream is over all the same, and nobody waits for that wake.
#[tokio::test]
async fn a_stream_whose_sandbox_is_being_woken_again_ends_in_the_error() {
    let stage = Stage::new(false).await;
    let sandbox = stage.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    let envd = Envd::accept(&stage.node, false, CONNECT);
    let (client, envd) = Client::call(stage.proxy.address, Over::Http2, 49983, envd).await;
    let gate = Gate::closed();
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let forget = http::Request::delete("/sandboxes/abc").header("host", "admin");
    crate::support::send(stage.proxy.admin, forget.body(crate::asking::bytes("")).expect("a request")).await;
    let asked = crate::asking::get(&stage.proxy, "abc", &[("x-sandbox-wake", "async")]).await;
    assert_eq!(crate::asking::outcome(&asked), (503, "waking"));
    drop(envd.cut(Cut::Rst));
    assert!(ends_with_ours(&client.rest().await, &[]));
    sandbox.connects_become(1).await;
    gate.open();
    stage.proxy.is_idle().await;
}

/// Who leaves is nobody's to look for.
#[tokio::test]
async fn a_client_that_leaves_makes_nobody_look() {
    let stage = Stage::new(false).await;
    let sandbox = stage.control.sandbox("abc");
    sandbox.running("127.0.0.1");
    for over in [Over::Http1, Over::Http2] {
        let envd = Envd::accept(&stage.node, false, CONNECT);
        let (mut client, mut envd) = Client::call(stage.proxy.address, over, 49983, envd).await;
        envd.say(&message(0, 5)).await;
        client.has(10).await;
        let lookups = sandbox.lookups();
        drop(client);
        let Envd::Http1(mut raw) = envd else { panic!("HTTP/1.1") };
        raw.is_left().await;
        assert_eq!(sandbox.lookups(), lookups);
    }
    eventually("all have left", async || stage.proxy.count("client_proxy_connections").await == 0).await;
}
