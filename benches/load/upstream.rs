//! The upstream: this program again as a process of its own, one thread, as little work as it can be. It keeps
//! connections alive and knows few paths; what it cannot do it says with a status that counts as an error.

mod tunnel;

use std::{
    cell::Cell,
    env,
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    rc::Rc,
};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, stdin},
    net::{TcpSocket, TcpStream},
    task::{LocalSet, spawn_local},
};

/// A small answer, about 100 bytes with its head.
pub(crate) const SMALL: &str = "/";
/// An answer of [`BODY`] bytes.
pub(crate) const DOWN: &str = "/down";
/// Swallows the body of a request, then answers.
pub(crate) const UP: &str = "/up";
/// Never answers.
pub(crate) const WAIT: &str = "/wait";
/// Becomes a WebSocket that sends back what it is sent.
pub(crate) const ECHO: &str = "/ws/echo";
/// Becomes a WebSocket that sends without end.
pub(crate) const BULK: &str = "/ws/bulk";
/// How many requests wait now.
const WAITING: &str = "/waiting";

/// Bytes of a body: 1 MiB.
pub(crate) const BODY: usize = 1 << 20;
/// What the small answer says.
pub(crate) const GREETING: &str = "hello from the sandbox\n";

/// The process; ended when dropped, and when whoever started it is gone: it reads a pipe from there.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Upstream {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .args(["--bench", "--upstream"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().context("a pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("an address, not {line:?}"))?;
        Ok(Self { address, process })
    }

    /// How many requests wait for an answer.
    pub(crate) async fn waiting(&self) -> anyhow::Result<usize> {
        let answer = crate::sockets::get(self.address, WAITING, "upstream").await?;
        Ok(answer.trim().parse()?)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until whoever started it is gone.
pub(crate) async fn serve() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(4096)?;
    println!("{}", listener.local_addr()?);
    let waiting = Rc::new(Cell::new(0));
    let answers =
        Rc::new(Answers { small: answer("200 OK", GREETING.as_bytes()), large: answer("200 OK", &vec![b'x'; BODY]) });
    let accept = async {
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let connection =
                Connection { socket, read: Vec::new(), answers: answers.clone(), waiting: waiting.clone() };
            // Its error is the other side's end, which the other side knows.
            spawn_local(async move { drop(connection.serve().await) });
        }
    };
    let mut nothing = [0];
    let mut stdin = stdin();
    LocalSet::new()
        .run_until(async {
            tokio::select! {
                error = accept => error,
                end = stdin.read(&mut nothing) => end.map(drop),
            }
        })
        .await
}

/// What is sent often, ready made.
struct Answers {
    small: Vec<u8>,
    large: Vec<u8>,
}

struct Connection {
    socket: TcpStream,
    /// What came after the last request.
    read: Vec<u8>,
    answers: Rc<Answers>,
    waiting: Rc<Cell<usize>>,
}

impl Connection {
    async fn serve(mut self) -> io::Result<()> {
        while let Some(Head { path, length, key }) = self.head().await? {
            let Some(length) = length else {
                return self.socket.write_all(&answer("501 Not Implemented", b"Content-Length only\n")).await;
            };
            self.swallow(length).await?;
            match &*path {
                SMALL | UP => self.socket.write_all(&self.answers.small).await?,
                DOWN => self.socket.write_all(&self.answers.large).await?,
                WAIT => return self.wait().await,
                ECHO | BULK if let Some(key) = key => return tunnel::serve(self.socket, &key, &path).await,
                WAITING => self.socket.write_all(&answer("200 OK", self.waiting.get().to_string().as_bytes())).await?,
                _ => self.socket.write_all(&answer("404 Not Found", b"no such path\n")).await?,
            }
        }
        Ok(())
    }

    /// The next head, taken out of what was read; `None` at the end.
    async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = Head::parse(&String::from_utf8_lossy(&self.read[..end]));
                self.read.drain(..end + 4);
                return Ok(Some(head));
            }
            if self.socket.read_buf(&mut self.read).await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn swallow(&mut self, length: usize) -> io::Result<()> {
        let here = length.min(self.read.len());
        self.read.drain(..here);
        let mut left = length - here;
        let mut buffer = vec![0; left.min(64 * 1024)];
        while left > 0 {
            let most = left.min(buffer.len());
            match self.socket.read(&mut buffer[..most]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => left -= count,
            }
        }
        Ok(())
    }

    /// Until the other side leaves.
    async fn wait(mut self) -> io::Result<()> {
        self.waiting.set(self.waiting.get() + 1);
        let end = self.socket.read_buf(&mut self.read).await;
        self.waiting.set(self.waiting.get() - 1);
        end.map(drop)
    }
}

struct Head {
    path: String,
    /// `None` where the framing is none that this upstream reads.
    length: Option<usize>,
    /// Of a WebSocket to be; `None` where that is not asked for.
    key: Option<String>,
}

impl Head {
    fn parse(head: &str) -> Self {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut length, mut key, mut upgrade) = (Some(0), None, false);
        for (name, value) in head.lines().filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                length = None;
            } else if name.eq_ignore_ascii_case("upgrade") {
                upgrade = value.trim().eq_ignore_ascii_case("websocket");
            } else if name.eq_ignore_ascii_case("sec-websocket-key") {
                key = Some(value.trim().to_owned());
            }
        }
        Self { path, length, key: key.filter(|_| upgrade) }
    }
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}
