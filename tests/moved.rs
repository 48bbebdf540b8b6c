//! A node that does not have the sandbox: it is looked for once more, and the same request goes where it is.

mod support;

use support::{
    Proxy, Raw,
    wire::{Api, HOST, Head, Node, OK, get},
};

/// A control plane, two machines on one port, and a proxy that asks where `abc` is.
struct Places {
    api: Api,
    old: Node,
    new: Node,
    proxy: Proxy,
}

impl Places {
    async fn start() -> Self {
        let mut api = Api::start().await;
        let old = Node::start().await;
        let new = Node::on(&format!("127.0.0.2:{}", old.address.port())).await;
        let proxy = Proxy::start(&format!(
            "server.workers = 1\ncatalog.kind = \"rest\"\ncatalog.rest.url = \"http://{}\"\ncatalog.rest.api_key = \"k\"\n\
             cache.ttl = \"60s\"\nupstream.address = \"{{node}}:{}\"",
            api.node.address,
            old.address.port()
        ));
        api.request().await;
        api.answer(404, "{}").await;
        Self { api, old, new, proxy }
    }

    /// The control plane is asked, and answers.
    async fn lookup(&mut self, node: &str) {
        assert_eq!(self.api.request().await.line(), "GET /sandboxes/abc HTTP/1.1");
        let body = format!("{{\"sandboxID\":\"abc\",\"state\":\"running\",\"nodeIP\":\"{node}\"}}");
        self.api.answer(200, &body).await;
    }
}

fn disowned() -> String {
    let body = "{\"sandboxId\":\"abc\",\"message\":\"The sandbox was not found\",\"code\":502}";
    format!(
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn the_same_request_goes_to_where_it_is_now() {
    let chunked = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    for request in [get("/x?y"), chunked] {
        let mut places = Places::start().await;
        let mut client = Raw::connect(places.proxy.address).await;
        client.write(&request).await;
        places.lookup("127.0.0.1").await;
        let mut old = places.old.accept().await;
        let seen = old.head().await;
        if request.ends_with("0\r\n\r\n") {
            assert_eq!(old.read_until("0\r\n\r\n").await, "3\r\nabc\r\n0\r\n\r\n");
        }
        old.write(disowned()).await;
        places.lookup("127.0.0.2").await;
        let mut new = places.new.accept().await;
        assert_eq!(new.head().await, seen);
        if request.ends_with("0\r\n\r\n") {
            assert_eq!(new.read_until("0\r\n\r\n").await, "3\r\nabc\r\n0\r\n\r\n");
        }
        new.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        client.write(get("/next")).await;
        assert_eq!(Head(new.head().await).line(), "GET /next HTTP/1.1");
    }
}

#[tokio::test]
async fn what_the_node_said_is_passed_on_where_looking_again_does_not_help() {
    let mut places = Places::start().await;
    let mut client = Raw::connect(places.proxy.address).await;
    client.write(get("/")).await;
    places.lookup("127.0.0.1").await;
    let mut old = places.old.accept().await;
    old.head().await;
    old.write(disowned()).await;
    places.lookup("127.0.0.1").await;
    let answer = client.message().await;
    assert!(disowned().ends_with(&answer.text()) && answer.head.status() == 502 && !answer.head.has("proxy-status"));
    assert!(places.old.nobody_knocks() && places.new.nobody_knocks(), "nothing is sent again");
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_left_for_the_next() {
    let mut places = Places::start().await;
    let elsewhere = Node::start().await;
    drop(std::mem::replace(&mut places.old, elsewhere));
    let mut client = Raw::connect(places.proxy.address).await;
    client.write(format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc")).await;
    places.lookup("127.0.0.1").await;
    places.lookup("127.0.0.2").await;
    let mut new = places.new.accept().await;
    new.head().await;
    assert_eq!(new.exactly(3).await, b"abc");
    new.write(OK).await;
    assert_eq!(client.message().await.text(), "ok");
}

#[tokio::test]
async fn a_head_request_goes_to_where_it_is_now() {
    let head = disowned().split_inclusive("\r\n\r\n").next().expect("a head").to_owned();
    for moved in [true, false] {
        let mut places = Places::start().await;
        let mut client = Raw::connect(places.proxy.address).await;
        client.write(get("/").replace("GET", "HEAD")).await;
        places.lookup("127.0.0.1").await;
        let mut old = places.old.accept().await;
        let seen = old.head().await;
        old.write(&head).await;
        places.lookup(if moved { "127.0.0.2" } else { "127.0.0.1" }).await;
        if moved {
            let mut new = places.new.accept().await;
            assert_eq!(new.head().await, seen);
            new.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await;
        }
        let answer = Head(client.head().await);
        assert_eq!((answer.status(), answer.has("proxy-status")), (if moved { 200 } else { 502 }, false));
    }
}

#[tokio::test]
async fn what_no_node_says_to_a_head_request_is_no_reason_to_look() {
    for other in [
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: 80\r\n\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 1025\r\n\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json; charset=utf-8\r\n\r\n",
        "HTTP/1.1 503 Oh\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 80\r\n\r\n",
    ] {
        let mut places = Places::start().await;
        let mut client = Raw::connect(places.proxy.address).await;
        client.write(get("/").replace("GET", "HEAD")).await;
        places.lookup("127.0.0.1").await;
        let mut old = places.old.accept().await;
        old.head().await;
        old.write(other).await;
        // Nobody answers a lookup: the answer would not come.
        assert!(Head(client.head().await).status() >= 502);
    }
}
