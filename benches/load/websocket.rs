//! Clients of `WebSocket` whose messages go there and back, and such that only take.

use std::net::SocketAddr;

use anyhow::ensure;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    generator::{Client, Work},
    peers::HOST,
    upstream::{BODY, BULK, ECHO},
};

/// The key of RFC 6455 §1.3, and what a server makes of it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Bytes of a message: 1 KiB.
const MESSAGE: u16 = 1024;

/// One message is under way, always.
pub(crate) struct Echo {
    socket: TcpStream,
    frame: Vec<u8>,
    read: Vec<u8>,
}

/// Takes what comes.
pub(crate) struct Bulk {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Client for Echo {
    async fn prepare(_: Work, address: SocketAddr) -> anyhow::Result<Self> {
        let frame = frame();
        Ok(Self { socket: open(address, ECHO).await?, read: vec![0; frame.len()], frame })
    }

    async fn once(&mut self) -> anyhow::Result<()> {
        self.socket.write_all(&self.frame).await?;
        self.socket.read_exact(&mut self.read).await?;
        ensure!(self.read == self.frame, "another message came back");
        Ok(())
    }
}

impl Client for Bulk {
    async fn prepare(_: Work, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { socket: open(address, BULK).await?, read: vec![0; 256 * 1024] })
    }

    async fn once(&mut self) -> anyhow::Result<()> {
        let mut left = BODY;
        while left > 0 {
            let most = left.min(self.read.len());
            let count = self.socket.read(&mut self.read[..most]).await?;
            ensure!(count > 0, "cut off");
            left -= count;
        }
        Ok(())
    }
}

/// A final binary frame of a client (RFC 6455 §5.2), its length in the two bytes after, masked with 0. The upstream
/// sends it back as it came.
fn frame() -> Vec<u8> {
    let [high, low] = MESSAGE.to_be_bytes();
    let mut frame = vec![0x82, 0xfe, high, low, 0, 0, 0, 0];
    frame.resize(frame.len() + usize::from(MESSAGE), b'x');
    frame
}

/// The opening handshake.
async fn open(address: SocketAddr, path: &str) -> anyhow::Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    // What comes after the head stays where it is.
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await?);
    }
    let answer = String::from_utf8(answer)?;
    ensure!(answer.starts_with("HTTP/1.1 101 ") && answer.contains(ACCEPT), "no WebSocket: {answer}");
    Ok(socket)
}
