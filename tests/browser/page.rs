//! The application of the sandboxes: a page, what its script asks for, and where it reports.

use std::{collections::HashMap, convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use crate::support::{control_plane::Gate, listen};

const PAGE: &str = include_str!("page.html");
/// What the page sets, and what comes back with each of its requests.
pub(crate) const COOKIE: &str = "session=5a4d";

type Body = BoxBody<Bytes, Infallible>;

/// What the test hears of.
#[derive(Debug)]
pub(crate) enum Happened {
    /// The head of a WebSocket's request.
    Handshake(Method, HeaderMap),
    /// The page waits here.
    Reached(String),
    Report(Value),
}

/// Serves until it is dropped.
pub(crate) struct Page {
    pub(crate) address: SocketAddr,
    pub(crate) happened: mpsc::UnboundedReceiver<Happened>,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    happens: mpsc::UnboundedSender<Happened>,
    gates: std::sync::Mutex<HashMap<String, Gate>>,
    events: Mutex<Option<mpsc::Sender<Bytes>>>,
    streamed: watch::Sender<usize>,
}

impl Page {
    pub(crate) fn serve() -> Self {
        let listener = listen("127.0.0.1:0");
        let address = listener.local_addr().expect("an address");
        let (happens, happened) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            happens,
            gates: std::sync::Mutex::default(),
            events: Mutex::default(),
            streamed: watch::Sender::new(0),
        });
        let (mut task, served) = (JoinSet::new(), shared.clone());
        task.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let shared = served.clone();
                open.spawn(async move {
                    let service = service_fn(move |request| answer(request, shared.clone()));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .with_upgrades();
                    let _ = connection.await;
                });
            }
        });
        Self { address, happened, shared, _task: task }
    }

    /// Lets the page go on from there.
    pub(crate) fn go_on(&self, from: &str) {
        self.shared.gate(from).open();
    }
}

impl Shared {
    fn gate(&self, name: &str) -> Gate {
        self.gates.lock().expect("no panic").entry(name.to_owned()).or_insert_with(Gate::closed).clone()
    }

    fn tell(&self, happened: Happened) {
        let _ = self.happens.send(happened);
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let path: Vec<_> = request.uri().path().split('/').map(str::to_owned).collect();
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    Ok(match (request.method().as_str(), &path[..]) {
        ("GET", ["", ""]) => {
            let mut answer = full(200, PAGE);
            set(&mut answer, "content-type", "text/html");
            set(&mut answer, "set-cookie", COOKIE);
            answer
        }
        ("GET", ["", "hello"]) => {
            let mut answer = full(200, "hello");
            set(&mut answer, "x-own", "1");
            answer
        }
        ("POST", ["", "upload"]) => upload(request, &shared).await,
        ("GET", ["", "uploaded", count]) => {
            let count: usize = count.parse().expect("a number");
            let _ = shared.streamed.subscribe().wait_for(|arrived| *arrived >= count).await;
            full(204, "")
        }
        ("POST", ["", "echo"]) => {
            // All of it first: by HTTP/1.1 browsers read no answer before they have sent everything.
            full(200, request.into_body().collect().await.map_or(Bytes::new(), Collected::to_bytes))
        }
        ("GET", ["", "events"]) => events(request.headers(), shared).await,
        ("POST", ["", "ack", number]) => {
            let number: usize = number.parse().expect("a number");
            let mut events = shared.events.lock().await;
            if number == 3 {
                // Its reader comes again.
                *events = None;
            } else {
                send(events.as_ref().expect("a stream"), number + 1).await;
            }
            full(204, "")
        }
        ("GET", ["", "socket"]) => socket(request, &shared),
        ("GET", ["", "wait", name]) => {
            shared.tell(Happened::Reached((*name).to_owned()));
            shared.gate(name).opened().await;
            full(204, "")
        }
        ("POST", ["", "report"]) => {
            let body = request.into_body().collect().await.expect("a report").to_bytes();
            shared.tell(Happened::Report(serde_json::from_slice(&body).expect("JSON")));
            full(204, "")
        }
        _ => full(404, "not found"),
    })
}

async fn upload(request: Request<Incoming>, shared: &Shared) -> Response<Body> {
    let streamed = request.uri().query() == Some("streamed");
    let (mut count, mut sum, length) = (0, 0_u64, request.headers().get("content-length").is_some());
    let mut parts = request.into_body().into_data_stream();
    while let Some(Ok(part)) = parts.next().await {
        count += part.len();
        sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        if streamed {
            shared.streamed.send_replace(count);
        }
    }
    full(200, json!({ "bytes": count, "sum": sum, "length": length }).to_string())
}

async fn events(headers: &HeaderMap, shared: Arc<Shared>) -> Response<Body> {
    let last = headers.get("last-event-id").map_or("0", |value| value.to_str().expect("ASCII"));
    let (to, from) = mpsc::channel::<Bytes>(4);
    send(&to, last.parse::<usize>().expect("a number") + 1).await;
    let (parts, watched) = (stream::unfold(from, async |mut from| Some((from.recv().await?, from))), to.clone());
    if last == "0" {
        *shared.events.lock().await = Some(to);
    } else {
        // Nobody says more, and nobody ends it but its reader: where the page waits for that, it goes on.
        tokio::spawn(async move {
            watched.closed().await;
            shared.gate("left").open();
        });
    }
    let mut answer = Response::new(BoxBody::new(StreamBody::new(parts.map(|part| Ok(Frame::data(part))))));
    set(&mut answer, "content-type", "text/event-stream");
    answer
}

async fn send(to: &mpsc::Sender<Bytes>, number: usize) {
    let _ = to.send(format!("retry: 1\nid: {number}\ndata: event {number}\n\n").into()).await;
}

/// The second protocol of those that are offered; what is said comes back.
fn socket(mut request: Request<Incoming>, shared: &Shared) -> Response<Body> {
    shared.tell(Happened::Handshake(request.method().clone(), request.headers().clone()));
    let offered = request.headers().get("sec-websocket-protocol").expect("protocols").to_str().expect("ASCII");
    let second = offered.split(", ").nth(1).expect("two").to_owned();
    let key = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let io = TokioIo::new(upgrade.await.expect("a tunnel"));
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if message == Message::text("leave") {
                let frame = CloseFrame { code: CloseCode::Library(4001), reason: "bye".into() };
                socket.close(Some(frame)).await.expect("a peer that reads");
            } else if !message.is_close() {
                socket.send(message).await.expect("a peer that reads");
            }
        }
    });
    let mut answer = full(101, "");
    for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-accept", &key)] {
        set(&mut answer, name, value);
    }
    set(&mut answer, "sec-websocket-protocol", &second);
    answer
}

fn full(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Full::new(body.into()).boxed());
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}

fn set(answer: &mut Response<Body>, name: &'static str, value: &str) {
    answer.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
}
