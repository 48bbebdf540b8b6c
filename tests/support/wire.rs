//! Both ends of the proxy as plain sockets: a test plays client and node itself, byte by byte, so that it
//! knows in which order things happened.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::{PATIENCE, Proxy, own_error};

/// The name of the one sandbox of these tests.
pub const HOST: &str = "8000-abc.example.test";

/// A machine that takes connections and says what the test says.
pub struct Node {
    pub address: SocketAddr,
    listener: TcpListener,
}

impl Node {
    pub async fn start() -> Self {
        Self::on("127.0.0.1:0").await
    }

    pub async fn on(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        Self { address: listener.local_addr().expect("an address"), listener }
    }

    /// The next connection.
    pub async fn accept(&self) -> Raw {
        let (socket, _) = timeout(PATIENCE, self.listener.accept()).await.expect("a connection in time").expect("one");
        Raw(socket)
    }

    /// Sends the request to the proxy on a connection of its own, and it comes here: both ends, and its head.
    pub async fn exchange(&self, proxy: &Proxy, request: impl AsRef<[u8]>) -> (Raw, Raw, Head) {
        let mut client = Raw::connect(proxy.address).await;
        client.write(request).await;
        let mut upstream = self.accept().await;
        let seen = Head(upstream.head().await);
        (client, upstream, seen)
    }

    /// Whether no connection waits to be accepted. Meaningful only after an event that a connection would
    /// have preceded.
    pub fn nobody_knocks(&self) -> bool {
        let knock = std::pin::pin!(self.listener.accept());
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        std::future::Future::poll(knock, &mut nobody).is_pending()
    }

    /// A proxy in node mode, one worker, that finds the sandbox `abc` here.
    pub fn proxy(&self) -> Proxy {
        self.proxy_with("")
    }

    /// The same with more lines of configuration.
    pub fn proxy_with(&self, lines: &str) -> Proxy {
        Proxy::start(&node_mode(self.address, lines))
    }
}

/// A port whose queue of connections is full, so that the system drops whoever knocks.
pub struct BlackHole {
    pub address: SocketAddr,
    _listener: Socket,
    _queued: Vec<Socket>,
}

impl BlackHole {
    pub fn dig() -> Self {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let listener = socket();
        listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().expect("an address").into()).expect("a free port");
        listener.listen(0).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let knock = || {
            let socket = socket();
            socket.connect_timeout(&address, std::time::Duration::from_millis(300)).is_ok().then_some(socket)
        };
        let queued: Vec<Socket> = std::iter::from_fn(knock).take(64).collect();
        assert!(queued.len() < 64, "the queue is never full");
        Self { address: address.as_socket().expect("an IP address"), _listener: listener, _queued: queued }
    }
}

/// Configuration: node mode, one worker; the sandbox `abc` is at `node`.
pub fn node_mode(node: SocketAddr, lines: &str) -> String {
    format!(
        "server.workers = 1\ncatalog.kind = \"static\"\ncatalog.static.abc = \"{}\"\n\
         upstream.address = \"{{node}}:{}\"\n{lines}\n",
        node.ip(),
        node.port(),
    )
}

/// Configuration: direct mode on loopback addresses, one worker; the sandbox `abc` is at 127.0.0.1.
pub fn direct_mode(lines: &str) -> String {
    format!(
        "server.workers = 1\ncatalog.kind = \"static\"\ncatalog.static.abc = \"127.0.0.1\"\n\
         upstream.mode = \"direct\"\nupstream.allow_loopback = true\n{lines}\n"
    )
}

/// A request without body, for the sandbox of these tests.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

/// A short answer.
pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The head of a message as it stood on the wire.
#[derive(Clone, Debug)]
pub struct Head(pub String);

impl Head {
    /// Request line or status line.
    pub fn line(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        let code = self.line().split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("no status: {:?}", self.0))
    }

    /// The values of all fields of this name, in their order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.0.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// The value of the only field of this name; empty if there is none.
    pub fn one(&self, name: &str) -> &str {
        match self.all(name)[..] {
            [] => "",
            [one] => one,
            _ => panic!("several {name}: {:?}", self.0),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }
}

/// A head and its whole body.
#[derive(Debug)]
pub struct Message {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Message {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status and code of an answer that the proxy itself made.
    pub fn refusal(&self) -> (u16, String) {
        let status = self.head.status();
        (status, own_error(status, |name| self.head.all(name).join(", "), &self.body))
    }
}

/// A raw connection: for what no well-behaved client or server would do.
pub struct Raw(pub TcpStream);

impl Raw {
    /// Asserts that it waits: nothing came, although the same process has since taken many connections that `others`
    /// listens for, and answered on them.
    pub async fn waits(&mut self, others: SocketAddr) {
        for _ in 0..50 {
            assert_eq!(super::get(others, "/healthz/live").await.text(), "alive\n");
        }
        let read = self.0.try_read(&mut [0]);
        assert!(matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{read:?}");
    }

    pub async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.expect("a connection"))
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("a peer that reads");
    }

    /// Reads until what was read ends with `end`, and returns it all.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            let byte = timeout(PATIENCE, self.0.read_u8()).await.expect("bytes in time");
            read.push(byte.unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&read))));
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The head of a message.
    pub async fn head(&mut self) -> String {
        self.read_until("\r\n\r\n").await
    }

    /// Reads until the peer ends the connection, well (`Ok`) or with a reset.
    pub async fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("an end in time")?;
        Ok(rest)
    }

    /// The next message; its body by `Content-Length` or chunks, else empty.
    pub async fn message(&mut self) -> Message {
        let head = Head(self.head().await);
        let body = match (head.one("transfer-encoding"), head.one("content-length")) {
            ("chunked", "") => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk().await {
                    body.extend(chunk);
                }
                assert_eq!(self.read_until("\r\n").await, "\r\n", "no trailers");
                body
            }
            ("", "") => Vec::new(),
            ("", length) => self.exactly(length.parse().expect("a length")).await,
            both => panic!("ambiguous framing: {both:?}"),
        };
        Message { head, body }
    }

    /// So many bytes.
    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let read = timeout(PATIENCE, self.0.read_exact(&mut bytes)).await.expect("bytes in time");
        read.unwrap_or_else(|error| panic!("{error}"));
        bytes
    }

    /// One chunk of a chunked body; `None` is the last one, after which come trailers and an empty line.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.read_until("\r\n").await;
        let size = usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        if size == 0 {
            return None;
        }
        let mut chunk = self.exactly(size + 2).await;
        assert_eq!(chunk.split_off(size), b"\r\n");
        Some(chunk)
    }

    /// Waits until the peer has ended the connection, however, whatever it sent before.
    pub async fn is_left(&mut self) {
        let mut buffer = [0; 4096];
        let end = async { while self.0.read(&mut buffer).await.is_ok_and(|count| count > 0) {} };
        timeout(PATIENCE, end).await.expect("the peer to leave");
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        reset(self.0);
    }

    /// Ends the connection, with a reset or well.
    pub fn end(self, with_reset: bool) {
        if with_reset {
            self.reset();
        }
    }

    /// Ends the sending direction.
    pub async fn half_close(&mut self) {
        self.0.shutdown().await.expect("an open connection");
    }
}

fn reset(socket: TcpStream) {
    let socket = Socket::from(socket.into_std().expect("a socket"));
    socket.set_linger(Some(std::time::Duration::ZERO)).expect("linger");
}
