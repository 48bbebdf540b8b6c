//! Connect streams of envd's that break off: how they end for the client, and that nobody is woken by it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use crate::{
    asking::Over,
    envd::{Cut, Envd},
    support::{
        PATIENCE, Proxy, Raw,
        control_plane::{ControlPlane, Sandbox, Step},
        eventually, nodes_at,
        wire::Node,
    },
};

const CONNECT: &str = "application/connect+proto";

/// One message.
fn message(flags: u8, length: usize) -> Vec<u8> {
    let head = u32::try_from(length).expect("a length").to_be_bytes();
    [&[flags], &head[..], &vec![b'x'; length]].concat()
}

/// A client that reads a stream to its end.
enum Client {
    Http1(Raw, Vec<u8>),
    Http2(h2::RecvStream, tokio::task::JoinHandle<()>),
}

/// What it has read, and whether that ended well.
type Read = (Vec<u8>, bool);

impl Client {
    /// `node` is played by `begin`, which must answer the request's head.
    async fn call<T>(proxy: SocketAddr, over: Over, port: u16, envd: impl Future<Output = T>) -> (Self, T) {
        match over {
            Over::Http1 => {
                let mut raw = Raw::connect(proxy).await;
                let head = format!(
                    "POST /process.Process/Start HTTP/1.1\r\nHost: {port}-abc.example.test\r\nConnection: close\r\n\
                     Content-Type: {CONNECT}\r\nContent-Length: 0\r\n\r\n"
                );
                raw.write(head).await;
                let begun = envd.await;
                let head = raw.head().await;
                assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("chunked"), "{head}");
                (Self::Http1(raw, Vec::new()), begun)
            }
            Over::Http2 => {
                let socket = TcpStream::connect(proxy).await.expect("a connection");
                let (mut sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
                let driver = tokio::spawn(async move { drop(connection.await) });
                let request = http::Request::post(format!("http://{port}-abc.example.test/process.Process/Start"));
                let request = request.header("content-type", CONNECT).body(()).expect("a request");
                let (answer, _) = sender.send_request(request, true).expect("a stream");
                let begun = envd.await;
                let answer = timeout(PATIENCE, answer).await.expect("an answer in time").expect("one");
                assert_eq!(answer.status(), 200);
                (Self::Http2(answer.into_body(), driver), begun)
            }
        }
    }

    /// Reads until so many bytes are there.
    async fn has(&mut self, count: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while read.len() < count {
            match self {
                Self::Http1(raw, _) => read.extend(raw.chunk().await.expect("more")),
                Self::Http2(body, _) => {
                    let data =
                        timeout(PATIENCE, body.data()).await.expect("bytes in time").expect("more").expect("more");
                    let _ = body.flow_control().release_capacity(data.len());
                    read.extend(data);
                }
            }
        }
        read
    }

    async fn rest(self) -> Read {
        match self {
            Self::Http1(mut raw, mut read) => {
                let to_end = async {
                    let mut part = [0; 65536];
                    while let Ok(count @ 1..) = raw.0.read(&mut part).await {
                        read.extend(&part[..count]);
                    }
                };
                timeout(PATIENCE, to_end).await.expect("an end in time");
                dechunked(&read)
            }
            Self::Http2(mut body, driver) => {
                let mut read = Vec::new();
                let ended = loop {
                    match timeout(PATIENCE, body.data()).await.expect("an end in time") {
                        Some(Ok(data)) => {
                            let _ = body.flow_control().release_capacity(data.len());
                            read.extend(data);
                        }
                        Some(Err(_)) => break false,
                        None => break true,
                    }
                };
                driver.abort();
                (read, ended)
            }
        }
    }
}

fn dechunked(mut read: &[u8]) -> Read {
    let mut body = Vec::new();
    loop {
        let Some(end) = read.windows(2).position(|two| two == b"\r\n") else { return (body, false) };
        let size = std::str::from_utf8(&read[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk: {size:?}"));
        read = &read[end + 2..];
        if size == 0 {
            assert_eq!(read, b"\r\n");
            return (body, true);
        }
        if read.len() < size + 2 {
            body.extend(read);
            return (body, false);
        }
        body.extend(&read[..size]);
        read = &read[size + 2..];
    }
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
            // Bytes are on their way; a reset must not overtake them on the proxy's side.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
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
                        // A reset may take with it what the proxy had not read yet.
                        let rest = &read.0[whole.len()..];
                        assert!(rest == part || (*cut == Cut::Rst && rest.is_empty()), "{about}: {rest:?}");
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
