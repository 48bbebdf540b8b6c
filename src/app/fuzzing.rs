//! The front door for `fuzz/` and the replay of its corpus, and for nobody else: one client connection over memory,
//! served as a worker serves one over TCP. Everything else is as in a running proxy: a request that is not refused
//! goes to its sandbox over a socket, on which the caller listens.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use anyhow::anyhow;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use super::server::{Finder, Parts, Server, limits, patience};
use crate::{
    config::{Config, Environment},
    control::{AnyCatalog, AnyResumer},
    edge::{
        conn::{self, Client, Protocol},
        proxy_protocol::{self, Parsed},
        socket::Transport,
        watch::Patience,
    },
    sandbox::Resolver,
    shutdown::Shutdown,
    telemetry::Metrics,
};

/// A proxy without listeners and workers: all of it runs on the caller's runtime.
pub struct Front {
    server: Rc<Server>,
    patience: Patience,
    shutdown: Shutdown,
    /// What stands in for the client's TCP connection, with its other end: open, and never a byte on it.
    idle: (Rc<TcpStream>, TcpStream),
}

impl Front {
    /// With this configuration, in TOML; its listeners are not opened. To be called in a `LocalSet` of a runtime
    /// with one thread.
    ///
    /// # Errors
    /// Faults of the configuration, or a resource that cannot be had.
    pub async fn new(toml: &str) -> anyhow::Result<Self> {
        let loaded = Config::load(toml.as_bytes(), &Environment::default()).map_err(|faults| anyhow!("{faults}"))?;
        let (config, metrics) = (&loaded.config, Metrics::new()?);
        let finder: Arc<Finder> = Resolver::new(
            AnyCatalog::new(&config.catalog, &Handle::current())?,
            AnyResumer::new(&config.resume, &Handle::current())?,
            limits(config),
            metrics.clone(),
            Handle::current(),
        );
        // For good: that of a worker ends with its thread.
        let shutdown = Shutdown::default().for_worker();
        let server = Parts::new(config, None, finder, metrics, None, &shutdown).server();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let idle = (Rc::new(listener.accept().await?.0), client);
        Ok(Self { server: Rc::new(server), patience: patience(config), shutdown, idle })
    }

    /// Serves the connection to its end; `http2`: without looking at what it begins with.
    pub async fn serve(&self, memory: DuplexStream, http2: bool) {
        let transport = Memory { memory, idle: self.idle.0.clone() };
        let client = Client { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), secure: false };
        let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
        conn::serve(transport, protocol, client, self.server.clone(), self.patience, &self.shutdown).await;
    }
}

/// What the first bytes of a connection are to the parser of PROXY headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// They may become a header.
    Incomplete,
    /// They never do.
    NotOne,
    /// They began like one.
    Malformed,
    /// One of so many bytes; whom it names, if anybody.
    Header(usize, Option<IpAddr>),
}

/// Parses them.
pub fn introduction(bytes: &[u8]) -> Introduction {
    match proxy_protocol::parse(bytes) {
        Parsed::Incomplete => Introduction::Incomplete,
        Parsed::NotOne => Introduction::NotOne,
        Parsed::Malformed => Introduction::Malformed,
        Parsed::Header { source, length } => Introduction::Header(length, source),
    }
}

struct Memory {
    memory: DuplexStream,
    idle: Rc<TcpStream>,
}

impl Transport for Memory {
    fn tcp(&self) -> &TcpStream {
        &self.idle
    }
}

impl AsyncRead for Memory {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.memory).poll_read(cx, buf)
    }
}

impl AsyncWrite for Memory {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.memory).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.memory).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.memory).poll_shutdown(cx)
    }
}
