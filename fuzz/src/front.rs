//! A client connection from its first byte to its end, against a sandbox that writes down all that comes.
//!
//! What must hold: whatever the client sends, the sandbox sees requests in the one canonical form, each of them one
//! that the client sent, in its order; the last of a connection may break off, and then the connection has ended.

use std::{cell::RefCell, net::SocketAddr, rc::Rc, time::Duration};

use client_proxy::app::fuzzing::Front;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    task::{LocalSet, spawn_local},
    time::{sleep, timeout},
};

use super::reading::{Request, lenient, strict};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
/// Behind everything else: when it has come, nothing more of the client does.
const SENTINEL: &[u8] = b"GET /sentinel HTTP/1.1\r\nHost: 1-abc.example.test\r\nConnection: close\r\n\r\n";

/// One connection from the proxy.
#[derive(Default)]
struct Upstream {
    seen: Vec<u8>,
    ended: bool,
    /// It carries another protocol: what comes is anything.
    tunnel: bool,
}

type Connections = Rc<RefCell<Vec<Rc<RefCell<Upstream>>>>>;

struct World {
    runtime: Runtime,
    local: LocalSet,
    front: Front,
    connections: Connections,
}

thread_local! {
    /// Made in the process that tries inputs, not in the one that it is forked from.
    static WORLD: World = World::new();
}

/// # Panics
/// Where something does not hold.
pub fn check(input: &[u8]) {
    // How many bytes come at once; all of them where that is no digit.
    let Some((&at_once, input)) = input.split_first() else { return };
    let at_once = if at_once.is_ascii_digit() && at_once > b'0' { usize::from(at_once - b'0') } else { 1 << 20 };
    WORLD.with(|world| world.check(at_once, input));
}

impl World {
    fn new() -> Self {
        // The paused clock: nobody waits for a client that sends no more.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let (runtime, local) = (runtime.expect("a runtime"), LocalSet::new());
        let connections = Connections::default();
        let front = local.block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("an address");
            spawn_local(accept(listener, connections.clone()));
            Front::new(&config(address)).await.expect("a proxy")
        });
        Self { runtime, local, front, connections }
    }

    fn check(&self, at_once: usize, input: &[u8]) {
        for upstream in self.connections.borrow().iter() {
            upstream.borrow_mut().seen.clear();
        }
        self.local.block_on(&self.runtime, async {
            self.exchange(at_once, input).await;
            let answer = self.exchange(1 << 20, SENTINEL).await;
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{:?}", String::from_utf8_lossy(&answer));
            let all_heard = async {
                while !self.connections.borrow().iter().all(|upstream| is_over(&upstream.borrow())) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            let patience = Duration::from_secs(2);
            timeout(patience, all_heard).await.expect("an exchange that broke off, and its connection did not end");
        });
        let mut seen = Vec::new();
        for upstream in self.connections.borrow().iter().filter(|upstream| !upstream.borrow().tunnel) {
            seen.push(strict(&upstream.borrow().seen).unwrap_or_else(|why| panic!("{why}")).0);
        }
        self.connections.borrow_mut().retain(|upstream| !upstream.borrow().ended);
        let sent = lenient(input);
        for requests in seen {
            let mut sent = sent.iter();
            for request in requests.iter().filter(|request| request.target != b"/sentinel") {
                assert!(sent.any(|sent| is_same(sent, request)), "nobody sent {request:?}; sent: {sent:?}");
            }
        }
    }

    /// Sends all of it and then the end; what came back.
    async fn exchange(&self, at_once: usize, input: &[u8]) -> Vec<u8> {
        let (client, proxy) = duplex(at_once);
        let (mut read, mut write) = tokio::io::split(client);
        let mut answer = Vec::new();
        let send = async {
            let _ = write.write_all(input).await;
            // An end in the middle of an exchange is a client that left. On the paused clock time passes when there
            // is nothing left to do.
            sleep(Duration::from_millis(50)).await;
            let _ = write.shutdown().await;
        };
        let receive = async {
            let _ = read.read_to_end(&mut answer).await;
        };
        tokio::join!(self.front.serve(proxy, false), send, receive);
        answer
    }
}

/// Whether nothing more is to come on it.
fn is_over(upstream: &Upstream) -> bool {
    upstream.ended || strict(&upstream.seen).map_or(true, |(_, whole)| whole == upstream.seen.len())
}

/// Whether what the sandbox saw is what the client sent, or its beginning.
fn is_same(sent: &Request, seen: &Request) -> bool {
    let target = sent.target.split(|byte| *byte == b'#').next().unwrap_or_default();
    // The path of an absolute form; an empty one is `/`.
    let same_target = target.ends_with(&seen.target) || target.ends_with(&seen.target[1..]);
    let same_body = if seen.whole { sent.whole && sent.body == seen.body } else { sent.body.starts_with(&seen.body) };
    sent.method == seen.method && same_target && same_body
}

fn config(sandbox: SocketAddr) -> String {
    format!(
        "server.trusted_proxies = [\"127.0.0.0/8\"]\ncatalog.kind = \"static\"\nresume.kind = \"none\"\ncatalog.static.abc = \"127.0.0.1\"\n\
         cache.ttl = \"24h\"\nupstream.address = \"{sandbox}\"\nupstream.idle_timeout = \"24h\"\n"
    )
}

async fn accept(listener: TcpListener, connections: Connections) {
    while let Ok((socket, _)) = listener.accept().await {
        let upstream = Rc::<RefCell<Upstream>>::default();
        connections.borrow_mut().push(upstream.clone());
        spawn_local(answer(socket, upstream));
    }
}

/// Answers every whole request.
async fn answer(mut socket: TcpStream, upstream: Rc<RefCell<Upstream>>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut answered = 0;
    while let Ok(count @ 1..) = socket.read(&mut buffer).await {
        let answer = {
            let mut upstream = upstream.borrow_mut();
            if upstream.tunnel {
                continue;
            }
            upstream.seen.extend(&buffer[..count]);
            // It begins anew for each input.
            answered = if upstream.seen.len() == count { 0 } else { answered };
            let Ok((requests, _)) = strict(&upstream.seen) else { break };
            let whole = requests.iter().filter(|request| request.whole);
            let (mut answers, new) = (Vec::new(), whole.skip(answered));
            for request in new {
                answered += 1;
                upstream.tunnel = request.target.starts_with(b"/switch");
                answers.extend(if upstream.tunnel { SWITCHED } else { OK });
                if request.method == b"HEAD" && !upstream.tunnel {
                    answers.truncate(answers.len() - 2);
                }
            }
            answers
        };
        if socket.write_all(&answer).await.is_err() {
            break;
        }
    }
    upstream.borrow_mut().ended = true;
}
