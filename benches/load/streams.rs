//! Requests over HTTP/2 that may have to wait.

use std::{future::Future, net::SocketAddr};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use http::Request;
use tokio::{
    net::TcpStream,
    task::spawn,
    time::{Instant, timeout},
};

use crate::{
    sockets::{Answer, PATIENCE},
    upstream::{GREETING, SMALL},
};

/// One connection with so many GETs of this path under way; it is there until the last answer is.
pub(crate) async fn asking(
    address: SocketAddr,
    path: &str,
    host: &str,
    count: usize,
) -> anyhow::Result<Vec<impl Future<Output = anyhow::Result<Answer>> + use<>>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (mut client, connection) = timeout(PATIENCE, handshake(socket)).await.context("no HTTP/2 in time")??;
    // What ends it, every stream is told as well.
    spawn(async move { drop(connection.await) });
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        client = timeout(PATIENCE, client.ready()).await.context("no room for a stream in time")??;
        let request = Request::get(format!("http://{host}{path}")).body(())?;
        let (response, _) = client.send_request(request, true)?;
        answers.push(answer(response, client.clone()));
    }
    Ok(answers)
}

/// Whether this way leads to the sandbox.
pub(crate) async fn answered(address: SocketAddr, host: &str) -> anyhow::Result<()> {
    let mut answers = asking(address, SMALL, host, 1).await?;
    let answer = answers.pop().context("one request")?;
    let Answer { status, body, .. } = timeout(PATIENCE, answer).await.context("no answer in time")??;
    ensure!(status == "200" && body == GREETING, "{status} over HTTP/2: {body}");
    Ok(())
}

async fn answer(response: ResponseFuture, _open: SendRequest<Bytes>) -> anyhow::Result<Answer> {
    let response = response.await?;
    let first_byte = Instant::now();
    let status = response.status().as_str().to_owned();
    let mut stream = response.into_body();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(Answer { status, body: String::from_utf8(body)?, first_byte, last_byte: Instant::now() })
}
