//! Tunnels, as far as a proxy sees them: an answer of 101, then bytes both ways. Nobody here looks into frames.

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::ECHO;

/// What is written at once: 64 KiB.
const BLOCK: usize = 64 * 1024;

/// Until the other side leaves.
pub(super) async fn serve(mut socket: TcpStream, key: &str, path: &str) -> io::Result<()> {
    let accept = accept(key);
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    let mut block = vec![b'x'; BLOCK];
    loop {
        let count = if path == ECHO { socket.read(&mut block).await? } else { BLOCK };
        if count == 0 {
            return Ok(());
        }
        socket.write_all(&block[..count]).await?;
    }
}

/// RFC 6455 §4.2.2.
fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}
