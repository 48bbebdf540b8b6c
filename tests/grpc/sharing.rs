//! Many calls, few connections; and none waits for another.

use tokio::{task::JoinSet, time::timeout};

use crate::{
    frames::{Peer, SETTINGS},
    notes::{Note, Notes, Service, note},
    support::{
        PATIENCE, Proxy, Raw, crowd, eventually,
        wire::{BlackHole, HOST, Node, direct_mode, node_mode},
    },
};

/// Talks under way on the service, from so many clients with so many each.
async fn talks(
    proxy: &Proxy,
    host: &str,
    clients: usize,
    each: usize,
) -> Vec<(tokio::sync::mpsc::UnboundedSender<Note>, tonic::Streaming<Note>)> {
    let mut begun = JoinSet::new();
    for _ in 0..clients {
        let notes = Notes::connect(proxy.address, host).await;
        for _ in 0..each {
            let mut notes = notes.clone();
            begun.spawn(async move { notes.talk().await.expect("an answer") });
        }
    }
    timeout(PATIENCE, begun.join_all()).await.expect("all under way")
}

#[tokio::test]
async fn a_hundred_calls_at_once_share_one_connection_where_it_has_room() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, ""));
    let mut talks = talks(&proxy, HOST, 4, 25).await;
    for (say, answers) in &mut talks {
        say.send(note("hello")).expect("a call under way");
        assert_eq!(answers.message().await.expect("well").expect("one").text, "re: hello");
    }
    assert_eq!((service.seen.calls(), service.seen.connections()), (100, 1));
    assert_eq!(proxy.count("client_proxy_upstream_connections").await, 1);
    assert_eq!(proxy.count("client_proxy_upstream_connections_total{result=\"ok\"}").await, 1);
}

#[tokio::test]
async fn where_a_connection_takes_ten_calls_there_are_ten_and_the_next_calls_use_them_again() {
    let service = Service::with_streams(10);
    let proxy = Proxy::start(&direct_mode(""));
    let host = format!("{}-abc.example.test", service.address.port());
    let first = talks(&proxy, &host, 4, 25).await;
    assert_eq!((service.seen.calls(), service.seen.connections()), (100, 10));
    drop(first);
    eventually("all are over", async || service.seen.cancelled() == 100).await;
    for _ in 0..20 {
        drop(talks(&proxy, &host, 1, 5).await);
    }
    assert_eq!(service.seen.connections(), 10);
}

#[tokio::test]
async fn a_reader_that_is_slow_blocks_no_other_call() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, ""));
    let notes = Notes::connect(proxy.address, HOST).await;
    let asked = Note { count: 1000, data: vec![7; 64 * 1024].into(), ..note("") };
    let mut unread = Vec::new();
    for _ in 0..40 {
        // Each on a connection of its own: what is not read there must not block what is read here.
        let mut slow = Notes::connect(proxy.address, HOST).await;
        unread.push(slow.list(asked.clone()).await.expect("an answer"));
    }
    for text in ["one", "two", "three"] {
        let echo = timeout(PATIENCE, notes.clone().echo(text)).await.expect("at once").expect("an answer");
        assert_eq!(echo, text);
        let mut quick = notes.clone().list(Note { count: 50, ..asked.clone() }).await.expect("an answer");
        while timeout(PATIENCE, quick.message()).await.expect("at once").expect("well").is_some() {}
    }
    assert_eq!(service.seen.connections(), 1);
}

#[tokio::test]
async fn calls_that_were_given_up_unread_take_nothing_with_them() {
    let service = Service::start();
    let proxy = Proxy::start(&node_mode(service.address, ""));
    let asked = Note { count: 1000, data: vec![7; 64 * 1024].into(), ..note("") };
    for round in 1..=6 {
        let mut notes = Notes::connect(proxy.address, HOST).await;
        let mut unread = Vec::new();
        for _ in 0..50 {
            unread.push(notes.list(asked.clone()).await.expect("an answer"));
        }
        assert_eq!(service.seen.calls(), round * 50);
    }
    let mut notes = Notes::connect(proxy.address, HOST).await;
    let mut quick = notes.list(Note { count: 50, ..asked }).await.expect("an answer");
    while timeout(PATIENCE, quick.message()).await.expect("at once").expect("well").is_some() {}
    assert_eq!(service.seen.connections(), 1);
}

#[tokio::test]
async fn one_dial_serves_all_that_wait_also_when_the_one_who_began_it_leaves() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"h2c\"");
    let mut first = Raw::connect(proxy.address).await;
    first.write(format!("GET /first HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    // Connected, but it does not know yet how many streams may be.
    let mut upstream = Peer::greet(node.accept().await).await;
    let mut second = Raw::connect(proxy.address).await;
    second.write(format!("GET /second HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    proxy.metric_becomes("client_proxy_connections", 2.0).await;
    second.waits(proxy.health).await;
    drop(first);
    proxy.metric_becomes("client_proxy_requests_total", 1.0).await;
    upstream.write(SETTINGS, 0, 0, &[]).await;
    let stream = upstream.headers().await;
    upstream.answer(stream, b"ok").await;
    assert_eq!(second.message().await.text(), "ok");
    assert!(node.nobody_knocks());
}

#[tokio::test]
async fn one_dial_fails_for_all_that_wait() {
    let nobody = BlackHole::dig();
    let lines = "upstream.protocol = \"h2c\"\nupstream.connect_timeout = \"1s\"";
    let proxy = Proxy::start(&node_mode(nobody.address, lines));
    for answer in crowd(proxy.address, "abc", "/", 30).join_all().await {
        assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    }
    assert_eq!(proxy.count("client_proxy_upstream_connections_total").await, 1);
}

#[tokio::test]
async fn beyond_all_connections_that_may_be_a_call_waits_for_another_s_end() {
    let service = Service::with_streams(1);
    let proxy = Proxy::start(&node_mode(service.address, ""));
    let mut under_way = talks(&proxy, HOST, 2, 64).await;
    let mut notes = Notes::connect(proxy.address, HOST).await;
    let waiting = tokio::spawn(async move { notes.echo("at last").await });
    proxy.metric_becomes("client_proxy_connections", 3.0).await;
    Raw::connect(proxy.address).await.waits(proxy.health).await;
    assert_eq!((service.seen.calls(), service.seen.connections()), (128, 128));
    under_way.pop();
    let echo = timeout(PATIENCE, waiting).await.expect("at once").expect("no panic").expect("an answer");
    assert_eq!((&*echo, service.seen.connections()), ("at last", 128));
}

#[tokio::test]
async fn what_is_idle_for_long_is_closed() {
    let node = Node::start().await;
    let proxy = node.proxy_with("upstream.protocol = \"h2c\"\nupstream.idle_timeout = \"50ms\"");
    let mut client = Raw::connect(proxy.address).await;
    client.write(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    let mut upstream = Peer::accept(&node).await;
    let stream = upstream.headers().await;
    upstream.answer(stream, b"ok").await;
    client.message().await;
    upstream.socket.is_left().await;
    proxy.metric_becomes("client_proxy_upstream_connections", 0.0).await;
}
