//! Whose connection it is: lives of sandboxes, nodes that have them no more, and sandboxes that are frozen.

use crate::{
    frames::{DATA, Peer, SETTINGS},
    notes::{Notes, Service, note},
    support::{
        DIRECT, Proxy, REMEMBER, Raw,
        control_plane::{ControlPlane, Step},
        eventually, nodes_at, own_ip,
        wire::Node,
    },
};

const H2C: &str = "upstream.protocol = \"h2c\"\nserver.workers = 1\n";

fn config(control: &ControlPlane, more: &str) -> String {
    control.config(more).replace("server.workers = 2\n", "")
}

async fn asked(proxy: &Proxy, sandbox: &str, port: u16) -> Raw {
    let mut client = Raw::connect(proxy.address).await;
    let body = "once";
    client
        .write(format!(
            "POST / HTTP/1.1\r\nHost: {port}-{sandbox}.example.test\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    client
}

/// The sandbox's next request is answered.
async fn answers(upstream: &mut Peer, client: &mut Raw, text: &str) {
    let stream = upstream.headers().await;
    upstream.answer(stream, text.as_bytes()).await;
    assert_eq!(client.message().await.text(), text);
}

#[tokio::test]
async fn in_direct_mode_no_request_reaches_another_life_through_a_shared_connection() {
    let (control, service) = (ControlPlane::start().await, Service::start());
    let port = service.address.port();
    let proxy = Proxy::start(&config(&control, &format!("{DIRECT}server.workers = 1\ncache.ttl = \"50ms\"\n")));
    let connect = async |sandbox| Notes::connect(proxy.address, &format!("{port}-{sandbox}.example.test")).await;
    control.sandbox("one").running("127.0.0.1");
    let mut one = connect("one").await;
    one.echo("hello").await.expect("an answer");
    // The same life, as often as it is looked up: the same connection.
    control.sandbox("one").lookups_become(1).await;
    eventually("it is looked up again", async || {
        one.echo("again").await.expect("an answer");
        control.sandbox("one").lookups() > 3
    })
    .await;
    assert_eq!(service.seen.connections(), 1);
    // The address becomes another's while something is under way.
    let (say, mut answers) = one.talk().await.expect("an answer");
    control.sandbox("two").running("127.0.0.1");
    let mut two = connect("two").await;
    two.echo("hello").await.expect("an answer");
    assert_eq!(service.seen.connections(), 2);
    // A restart is another life, too.
    control.sandbox("two").running("127.0.0.1");
    eventually("the restart is known", async || {
        two.echo("hello").await.expect("an answer");
        service.seen.connections() == 3
    })
    .await;
    say.send(note("late")).expect("a call under way");
    assert_eq!(answers.message().await.expect("well").expect("one").text, "re: late");
    // What the former lives had is closed when it is over.
    drop((say, answers));
    proxy.metric_becomes("client_proxy_upstream_connections", 1.0).await;
}

/// A sandbox whose first lookup names the old node, and whose second finds it at the new one.
async fn moving(lines: &str) -> (ControlPlane, Node, Node, Proxy) {
    let control = ControlPlane::start().await;
    let (old_ip, new_ip) = (own_ip(), own_ip());
    let old = Node::on(&format!("{old_ip}:0")).await;
    let new = Node::on(&format!("{new_ip}:{}", old.address.port())).await;
    let lines = format!("{}{H2C}{REMEMBER}{lines}", nodes_at(old.address.port()));
    let proxy = Proxy::start(&config(&control, &lines));
    let sandbox = control.sandbox("abc");
    let moves = {
        let sandbox = sandbox.clone();
        Step::Truly.doing(move || drop(sandbox.running(&new_ip).clone()))
    };
    sandbox.running(&old_ip).looks_up([Step::Truly, moves]);
    (control, old, new, proxy)
}

#[tokio::test]
async fn a_node_that_has_the_sandbox_no_more_is_left_and_the_same_request_is_sent_to_the_other() {
    let (_control, old, new, proxy) = moving("").await;
    let mut client = asked(&proxy, "abc", 8000).await;
    let mut upstream = Peer::accept(&old).await;
    let stream = upstream.headers().await;
    assert_eq!(upstream.next_of(DATA).await.payload, b"once");
    let text = r#"{"sandboxId":"abc","message":"The sandbox was not found","code":502}"#;
    upstream.disowns(stream, text).await;
    let mut upstream = Peer::accept(&new).await;
    let stream = upstream.headers().await;
    assert_eq!(upstream.next_of(DATA).await.payload, b"once");
    upstream.answer(stream, b"found").await;
    assert_eq!(client.message().await.text(), "found");
    assert_eq!(proxy.count("client_proxy_retries_total{reason=\"not_there\"}").await, 1);
}

#[tokio::test]
async fn a_node_that_is_mute_is_left_and_the_same_request_is_sent_to_the_other() {
    let (_control, old, new, proxy) = moving("upstream.connect_timeout = \"300ms\"\n").await;
    let mut client = asked(&proxy, "abc", 8000).await;
    let _mute = Peer::greet(old.accept().await).await;
    let mut upstream = Peer::accept(&new).await;
    let stream = upstream.headers().await;
    assert_eq!(upstream.next_of(DATA).await.payload, b"once");
    upstream.answer(stream, b"found").await;
    assert_eq!(client.message().await.text(), "found");
}

#[tokio::test]
async fn a_frozen_sandbox_is_woken_and_the_same_exchange_is_answered_even_before_a_word_was_said() {
    for greeted in [false, true] {
        let control = ControlPlane::start().await;
        let app = Node::start().await;
        let proxy = Proxy::start(&config(&control, &format!("{DIRECT}{H2C}cache.ttl = \"50ms\"\n")));
        let sandbox = control.sandbox("abc");
        sandbox.running("127.0.0.1").wakes([Step::Truly]);
        let mut client = asked(&proxy, "abc", app.address.port()).await;
        let mut upstream = Peer::greet(app.accept().await).await;
        if greeted {
            upstream.write(SETTINGS, 0, 0, &[]).await;
            assert_eq!(upstream.next_of(DATA).await.payload, b"once");
        }
        sandbox.paused("127.0.0.1");
        sandbox.connects_become(1).await;
        proxy.metric_becomes("client_proxy_wakes_total", 1.0).await;
        if !greeted {
            upstream.write(SETTINGS, 0, 0, &[]).await;
            assert_eq!(upstream.next_of(DATA).await.payload, b"once");
        }
        upstream.answer(1, b"awake").await;
        assert_eq!(client.message().await.text(), "awake");
        assert!(app.nobody_knocks(), "nothing is sent twice");
    }
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_given_up_and_others_on_the_connection_are_not() {
    let node = Node::start().await;
    let proxy = node
        .proxy_with(&format!("{H2C}upstream.response_header_timeout = \"300ms\"").replace("server.workers = 1\n", ""));
    let mut silent = asked(&proxy, "abc", 8000).await;
    let mut upstream = Peer::accept(&node).await;
    let stream = upstream.headers().await;
    assert_eq!(silent.message().await.refusal(), (504, "upstream_timeout".into()));
    assert_eq!(upstream.is_reset().await.0, stream);
    let mut client = asked(&proxy, "abc", 8000).await;
    answers(&mut upstream, &mut client, "another").await;
    assert!(node.nobody_knocks());
}
