//! Clients for what wrk cannot do: connections that stay, requests that wait.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::upstream::SMALL;

/// Nothing that answers at all takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client's connection.
pub(crate) struct Client<S = TcpStream>(pub(crate) S);

/// An answer, and when it came.
pub(crate) struct Answer {
    pub(crate) status: String,
    pub(crate) body: String,
    pub(crate) first_byte: Instant,
    pub(crate) last_byte: Instant,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self(socket))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Sends a GET.
    pub(crate) async fn send(&mut self, path: &str, host: &str) -> io::Result<()> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await
    }

    /// Reads an answer: its body by `Content-Length`, otherwise to the end of the connection.
    pub(crate) async fn answer(&mut self) -> anyhow::Result<Answer> {
        let mut read = Vec::new();
        self.0.read_buf(&mut read).await?;
        let first_byte = Instant::now();
        loop {
            let end = End::of(&read);
            if matches!(end, End::At(end) if read.len() >= end) {
                break;
            }
            if self.0.read_buf(&mut read).await? == 0 {
                ensure!(end == End::Close, "cut off after {} bytes", read.len());
                break;
            }
        }
        let last_byte = Instant::now();
        let text = String::from_utf8(read)?;
        let (head, body) = text.split_once("\r\n\r\n").context("a head")?;
        let status = head.split(' ').nth(1).context("a status")?.to_owned();
        Ok(Answer { status, body: body.to_owned(), first_byte, last_byte })
    }

    /// A GET and its answer, which must be 200.
    pub(crate) async fn get(&mut self, path: &str, host: &str) -> anyhow::Result<Answer> {
        let answer = async {
            self.send(path, host).await?;
            self.answer().await
        };
        let answer = timeout(PATIENCE, answer).await.context("no answer in time")??;
        ensure!(answer.status == "200", "{} for GET {path}: {}", answer.status, answer.body);
        Ok(answer)
    }
}

/// Where an answer ends that has begun with these bytes.
#[derive(PartialEq, Eq)]
enum End {
    /// The head is not all there.
    Unknown,
    /// After so many bytes.
    At(usize),
    /// With the connection.
    Close,
}

impl End {
    fn of(read: &[u8]) -> Self {
        let Some(head) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Self::Unknown };
        let length = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
        };
        let length = String::from_utf8_lossy(&read[..head]).lines().find_map(length);
        length.map_or(Self::Close, |length| Self::At(head + 4 + length))
    }
}

/// The body of one GET on a connection of its own.
pub(crate) async fn get(address: SocketAddr, path: &str, host: &str) -> anyhow::Result<String> {
    Ok(Client::connect(address).await?.get(path, host).await?.body)
}

/// So many connections, each of which was answered once.
pub(crate) async fn answered(address: SocketAddr, host: &str, count: usize) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = Client::connect(address).await?;
        client.get(SMALL, host).await?;
        clients.push(client);
    }
    Ok(clients)
}

/// So many connections, each with a request of this path under way.
pub(crate) async fn asking(address: SocketAddr, path: &str, host: &str, count: usize) -> io::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = Client::connect(address).await?;
        client.send(path, host).await?;
        clients.push(client);
    }
    Ok(clients)
}

/// What every process does on its first requests, and never again: code paged in, pools and arenas made.
pub(crate) async fn warm_up(address: SocketAddr, host: &'static str) -> anyhow::Result<()> {
    const CONNECTIONS: usize = 64;
    const REQUESTS: usize = 50;
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        clients.spawn(async move {
            let mut client = Client::connect(address).await?;
            for _ in 0..REQUESTS {
                client.get(SMALL, host).await?;
            }
            anyhow::Ok(())
        });
    }
    clients.join_all().await.into_iter().collect()
}

/// Waits until `reached` says so, which is asked again and again.
pub(crate) async fn until(what: &str, mut reached: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let start = Instant::now();
    while !reached().await? {
        ensure!(start.elapsed() < PATIENCE, "not in {} s: {what}", PATIENCE.as_secs());
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
