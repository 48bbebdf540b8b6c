//! A sandbox that writes down every byte which reaches it, and answers every whole request.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    corpus::reading::strict,
    support::{eventually, wire::OK},
};

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// One connection from the proxy.
#[derive(Default)]
struct Connection {
    bytes: Vec<u8>,
    ended: bool,
}

type Connections = Arc<Mutex<Vec<Arc<Mutex<Connection>>>>>;

pub(crate) struct Sandbox {
    pub(crate) address: SocketAddr,
    connections: Connections,
    _tasks: JoinSet<()>,
}

impl Sandbox {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let connections = Connections::default();
        let (mut tasks, all) = (JoinSet::new(), connections.clone());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let connection = Arc::<Mutex<Connection>>::default();
                all.lock().expect("no panic").push(connection.clone());
                open.spawn(serve(socket, connection));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    /// All bytes so far, connection by connection; and whether each has ended.
    fn seen(&self) -> Vec<(Vec<u8>, bool)> {
        let connections = self.connections.lock().expect("no panic");
        connections.iter().map(|one| one.lock().expect("no panic")).map(|one| (one.bytes.clone(), one.ended)).collect()
    }

    /// Waits until so many bytes have come that are no whole request, or part of a tunnel.
    pub(crate) async fn sees_a_part(&self) {
        let part = |(bytes, ended): &(Vec<u8>, bool)| !ended && strict(bytes).is_ok_and(|(_, n)| n < bytes.len());
        eventually("a part of a request", async || self.seen().iter().any(part)).await;
    }

    /// What came since the last time, as `METHOD target body`; `~` before one that broke off, and then its
    /// connection has ended. All of it is canonical.
    pub(crate) async fn takes(&self, row: &str) -> Vec<String> {
        let over = |(bytes, ended): &(Vec<u8>, bool)| {
            *ended || strict(bytes).unwrap_or_else(|why| panic!("{row}: {why}")).1 == bytes.len()
        };
        eventually(&format!("{row}: an end of what broke off"), async || self.seen().iter().all(over)).await;
        let mut told = Vec::new();
        for (bytes, _) in self.seen() {
            let (requests, whole) = strict(&bytes).unwrap_or_else(|why| panic!("{row}: {why}"));
            for request in &requests {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let mark = if request.whole { "" } else { "~" };
                let told_of =
                    format!("{mark}{} {} {}", text(&request.method), text(&request.target), text(&request.body));
                told.push(told_of.trim_end().to_owned());
            }
            assert!(whole == bytes.len() || requests.last().is_some_and(|last| !last.whole), "{row}: half a head");
        }
        let connections = self.connections.lock().expect("no panic");
        connections.iter().for_each(|one| one.lock().expect("no panic").bytes.clear());
        told
    }
}

async fn serve(mut socket: TcpStream, connection: Arc<Mutex<Connection>>) {
    let mut buffer = vec![0; 64 * 1024];
    let (mut answered, mut switched) = (0, false);
    while let Ok(count @ 1..) = socket.read(&mut buffer).await {
        let mut answers = String::new();
        {
            let mut connection = connection.lock().expect("no panic");
            // They are taken after each row.
            answered = if connection.bytes.is_empty() { 0 } else { answered };
            if switched {
                continue;
            }
            connection.bytes.extend(&buffer[..count]);
            // What is not canonical is told by whoever takes it.
            let (requests, _) = strict(&connection.bytes).unwrap_or_default();
            for request in requests.iter().filter(|request| request.whole).skip(answered) {
                answered += 1;
                switched = request.target.starts_with(b"/switch");
                answers += if switched { SWITCHED } else { OK };
                if request.method == b"HEAD" {
                    answers.truncate(answers.len() - 2);
                }
            }
        }
        if socket.write_all(answers.as_bytes()).await.is_err() {
            break;
        }
    }
    connection.lock().expect("no panic").ended = true;
}
