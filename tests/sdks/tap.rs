//! Listens in on what goes to a proxy, on a line of its own.

use std::{
    borrow::Cow,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::TcpStream,
    task::JoinSet,
};

use crate::support::listen;

#[derive(Default)]
struct Line {
    heard: Mutex<Vec<u8>>,
    hop: Mutex<&'static str>,
}

/// A port that leads to the proxy; ends when dropped.
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    line: Arc<Line>,
    _tasks: JoinSet<()>,
}

impl Tap {
    pub(crate) fn on(proxy: SocketAddr) -> Self {
        let listener = listen("127.0.0.1:0");
        let address = listener.local_addr().expect("an address");
        let line = Arc::<Line>::default();
        let (mut tasks, ears) = (JoinSet::new(), line.clone());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                open.spawn(pass_on(client, proxy, ears.clone()));
            }
        });
        Self { address, line, _tasks: tasks }
    }

    /// Adds these lines to every head from now on, as a hop on the way would.
    pub(crate) fn adds(&self, lines: &'static str) {
        *self.line.hop.lock().expect("no panic") = lines;
    }

    /// The requests since the last time, each as method and path. Each stands here before it is answered.
    pub(crate) fn requests(&self) -> Vec<String> {
        let heard = std::mem::take(&mut *self.line.heard.lock().expect("no panic"));
        let heard = String::from_utf8_lossy(&heard);
        heard.split("\r\n").filter_map(|line| line.strip_suffix(" HTTP/1.1")).map(method_and_path).collect()
    }
}

/// A body may end without a line break, just before the method.
fn method_and_path(line: &str) -> String {
    let (before, target) = line.rsplit_once(' ').expect("a request line");
    let path = target.split('?').next().unwrap_or_default();
    let method = before.rsplit(|letter: char| !letter.is_ascii_uppercase()).next().unwrap_or_default();
    format!("{method} {path}")
}

/// What comes at once of a request, with these lines behind its first one; SDKs write that whole.
fn behind_hop<'a>(bytes: &'a [u8], lines: &str) -> Cow<'a, [u8]> {
    const END: &[u8] = b" HTTP/1.1\r\n";
    let end = bytes.windows(END.len()).position(|part| part == END).filter(|_| !lines.is_empty());
    end.map_or(bytes.into(), |at| {
        let (first, rest) = bytes.split_at(at + END.len());
        [first, lines.as_bytes(), rest].concat().into()
    })
}

async fn pass_on(client: TcpStream, proxy: SocketAddr, line: Arc<Line>) {
    let Ok(upstream) = TcpStream::connect(proxy).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_proxy, mut to_proxy) = upstream.into_split();
    let forth = async {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            line.heard.lock().expect("no panic").extend_from_slice(&buffer[..count]);
            let hop = *line.hop.lock().expect("no panic");
            if to_proxy.write_all(&behind_hop(&buffer[..count], hop)).await.is_err() {
                break;
            }
        }
        let _ = to_proxy.shutdown().await;
    };
    let back = async {
        let _ = copy(&mut from_proxy, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::join!(forth, back);
}
