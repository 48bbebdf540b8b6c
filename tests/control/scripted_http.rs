//! An HTTP server that plays a script: request by request it compares what came with what was expected
//! and answers with the bytes that the script says, however broken. Dropping it panics if a step is left
//! or a request came that the script does not know.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};

/// What to do with one request.
pub(crate) struct Step {
    request: String,
    lines: Vec<(String, String)>,
    body: Option<String>,
    reply: Reply,
}

enum Reply {
    /// These bytes; then the connection is kept for the next request, or closed.
    Bytes { bytes: Vec<u8>, close: bool },
    /// A head and then chunks until the peer has had enough.
    Endless,
    /// Nothing, until the peer leaves.
    Hang,
}

impl Step {
    /// Expects this request line without its version, e.g. `GET /sandboxes/a`; no reply is set yet.
    pub(crate) fn on(request: &str) -> Self {
        Self { request: request.into(), lines: Vec::new(), body: None, reply: Reply::Hang }
    }

    /// Also expects this header, once, with this value.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// Also expects this body.
    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Answers with JSON.
    pub(crate) fn json(self, status: u16, body: &str) -> Self {
        self.reply_as(status, "application/json", body)
    }

    /// Answers with any content type.
    pub(crate) fn reply_as(self, status: u16, content_type: &str, body: &str) -> Self {
        let length = body.len();
        self.bytes(
            format!(
                "HTTP/1.1 {status} Whatever\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
            false,
        )
    }

    /// Answers with JSON in chunks of one byte.
    pub(crate) fn chunked(self, status: u16, body: &str) -> Self {
        use std::fmt::Write as _;
        let mut text = format!("HTTP/1.1 {status} Whatever\r\ntransfer-encoding: chunked\r\n\r\n");
        for char in body.chars() {
            let _ = write!(text, "{:x}\r\n{char}\r\n", char.len_utf8());
        }
        self.bytes(text + "0\r\n\r\n", false)
    }

    /// Writes these bytes and closes.
    pub(crate) fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.bytes(bytes, true)
    }

    /// Answers 200 with a body that never ends.
    pub(crate) fn endless(mut self) -> Self {
        self.reply = Reply::Endless;
        self
    }

    /// Never answers.
    pub(crate) fn hang(mut self) -> Self {
        self.reply = Reply::Hang;
        self
    }

    fn bytes(mut self, bytes: impl Into<Vec<u8>>, close: bool) -> Self {
        self.reply = Reply::Bytes { bytes: bytes.into(), close };
        self
    }
}

/// The server; ends when dropped.
pub(crate) struct ScriptedHttp {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    steps: Mutex<VecDeque<Step>>,
    faults: Mutex<Vec<String>>,
    /// One permit for each peer that left an endless or hanging answer.
    left: Semaphore,
    requests: AtomicUsize,
}

impl ScriptedHttp {
    /// Listens on a free loopback port.
    pub(crate) async fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            steps: Mutex::new(steps.into_iter().collect()),
            faults: Mutex::default(),
            left: Semaphore::new(0),
            requests: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Self { address, state, accepting }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(SeqCst)
    }

    /// Waits until a peer has left an answer that does not end.
    pub(crate) async fn peer_left(&self) {
        let permit = self.state.left.acquire().await;
        permit.expect("never closed").forget();
    }
}

impl Drop for ScriptedHttp {
    fn drop(&mut self) {
        self.accepting.abort();
        if std::thread::panicking() {
            return;
        }
        let faults = self.state.faults.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(faults.is_empty(), "the script was not followed: {faults:#?}");
        let steps = self.state.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let left: Vec<_> = steps.iter().map(|step| &step.request).collect();
        assert!(left.is_empty(), "these requests never came: {left:?}");
    }
}

async fn serve(mut socket: TcpStream, state: Arc<State>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut socket, &mut buffer).await {
        state.requests.fetch_add(1, SeqCst);
        let step = {
            let mut steps = state.steps.lock().unwrap_or_else(PoisonError::into_inner);
            steps.pop_front()
        };
        let faults = match &step {
            Some(step) => request.differences(step),
            None => vec![format!("nothing was expected, {:?} came", request.line)],
        };
        state.faults.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
        let Some(step) = step else { return };
        match step.reply {
            Reply::Bytes { bytes, close } => {
                if socket.write_all(&bytes).await.is_err() || close {
                    return;
                }
            }
            Reply::Endless => {
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                let mut written = socket.write_all(head).await;
                let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
                while written.is_ok() {
                    written = socket.write_all(chunk.as_bytes()).await;
                }
                state.left.add_permits(1);
                return;
            }
            Reply::Hang => {
                while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                state.left.add_permits(1);
                return;
            }
        }
    }
}

struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn differences(&self, step: &Step) -> Vec<String> {
        let mut faults = Vec::new();
        if self.line != format!("{} HTTP/1.1", step.request) {
            faults.push(format!("{:?} expected, {:?} came", step.request, self.line));
        }
        for (name, want) in &step.lines {
            let values = self.headers.iter().filter(|(key, _)| key == name);
            let values: Vec<_> = values.map(|(_, value)| value).collect();
            if values != [want] {
                faults.push(format!("{}: {name}: {want:?} expected, {values:?} came", step.request));
            }
        }
        if let Some(want) = &step.body
            && self.body != *want
        {
            faults.push(format!("{}: body {want:?} expected, {:?} came", step.request, self.body));
        }
        faults
    }
}

async fn read_request(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let mut lines = head.split("\r\n");
            let line = lines.next()?.to_owned();
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
            while buffer.len() < end + 4 + length {
                if socket.read_buf(buffer).await.ok()? == 0 {
                    return None;
                }
            }
            let rest = buffer.split_off(end + 4 + length);
            let body = String::from_utf8_lossy(&buffer[end + 4..]).into_owned();
            *buffer = rest;
            return Some(Request { line, headers, body });
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
