//! A collector of traces, as the wire has it: HTTP/2 and protobuf. What a library of the proxy's own would
//! hide is seen here.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use h2::{
    RecvStream,
    server::{self, SendResponse},
};
use http::{HeaderMap, HeaderValue, Request, Response};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span as Told, status::StatusCode},
};
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::eventually;

/// A span, its ids as hexadecimal text.
#[derive(Clone, Debug)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty: it is the first of its trace.
    pub parent: String,
    pub state: String,
    /// `Internal`, `Server` or `Client`.
    pub kind: &'static str,
    pub attributes: BTreeMap<String, String>,
    pub failed: bool,
    /// Nanoseconds since 1970.
    pub from: u64,
    pub to: u64,
    /// Who told it.
    pub resource: BTreeMap<String, String>,
}

impl Span {
    /// The attribute of this name; empty: there is none.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    calls: AtomicUsize,
    spans: Mutex<Vec<Span>>,
    headers: Mutex<Vec<HeaderMap>>,
}

/// A collector on a free port; ends when dropped.
pub struct Collector {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    _task: JoinSet<()>,
}

impl Collector {
    /// Takes what it is told.
    pub async fn start() -> Self {
        Self::new(true).await
    }

    /// Listens to all that it is told, and never says a word.
    pub async fn mute() -> Self {
        Self::new(false).await
    }

    async fn new(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (seen, mut task) = (Arc::new(Seen::default()), JoinSet::new());
        task.spawn({
            let seen = seen.clone();
            async move {
                let mut open = JoinSet::new();
                while let Ok((socket, _)) = listener.accept().await {
                    seen.connections.fetch_add(1, SeqCst);
                    open.spawn(serve(socket, seen.clone(), answers));
                }
            }
        });
        Self { address, seen, _task: task }
    }

    /// The configuration of a proxy that tells its traces here; `more` is the rest of it.
    pub fn config(&self, more: &str) -> String {
        format!("otlp.endpoint = \"http://{}\"\n{more}", self.address)
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(SeqCst)
    }

    /// Calls whose spans have been read.
    pub fn calls(&self) -> usize {
        self.seen.calls.load(SeqCst)
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.seen.spans.lock().expect("no panic").clone()
    }

    /// The headers of all calls so far.
    pub fn headers(&self) -> Vec<HeaderMap> {
        self.seen.headers.lock().expect("no panic").clone()
    }

    /// The span of the request with this id, once it is there with so many others of its trace; then those,
    /// by name.
    pub async fn request(&self, id: &str, others: usize) -> (Span, BTreeMap<String, Vec<Span>>) {
        let mut found = None;
        eventually(&format!("{id} with {others} more: {:?}", self.spans()), async || {
            let all = self.spans();
            let of = |span: &&Span| span.get("client_proxy.request.id") == id;
            let Some(span) = all.iter().find(of).cloned() else { return false };
            let rest: Vec<_> =
                all.into_iter().filter(|other| other.trace == span.trace && other.id != span.id).collect();
            let complete = rest.len() == others;
            let mut named = BTreeMap::<String, Vec<Span>>::new();
            for other in rest {
                named.entry(other.name.clone()).or_default().push(other);
            }
            found = Some((span, named));
            complete
        })
        .await;
        found.expect("just seen")
    }
}

async fn serve(socket: TcpStream, seen: Arc<Seen>, answers: bool) {
    let Ok(mut connection) = server::handshake(socket).await else { return };
    let mut calls = JoinSet::new();
    // Whoever accepts also drives the connection.
    while let Some(Ok((request, respond))) = connection.accept().await {
        calls.spawn(take(request, respond, seen.clone(), answers));
    }
}

/// One call, `TraceService/Export`.
async fn take(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, seen: Arc<Seen>, answers: bool) {
    let (head, mut body) = request.into_parts();
    assert_eq!(head.uri.path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    let mut bytes = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        bytes.extend_from_slice(&data);
        let _ = body.flow_control().release_capacity(data.len());
    }
    // One message: a byte that says that it is not compressed, four of length.
    let call = ExportTraceServiceRequest::decode(&bytes[5..]).expect("spans");
    for group in call.resource_spans {
        let resource = attributes(&group.resource.unwrap_or_default().attributes);
        let told = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
        seen.spans.lock().expect("no panic").extend(told.map(|span| read(span, &resource)));
    }
    seen.headers.lock().expect("no panic").push(head.headers);
    seen.calls.fetch_add(1, SeqCst);
    if !answers {
        std::future::pending::<()>().await;
    }
    let answer = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
    let Ok(mut stream) = respond.send_response(answer, false) else { return };
    let _ = stream.send_data(Bytes::from_static(&[0; 5]), false);
    let _ = stream.send_trailers(HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]));
}

fn read(span: Told, resource: &BTreeMap<String, String>) -> Span {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    Span {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state,
        kind: ["Unspecified", "Internal", "Server", "Client"][usize::try_from(span.kind).expect("a kind")],
        attributes: attributes(&span.attributes),
        failed: span.status.is_some_and(|status| status.code() == StatusCode::Error),
        from: span.start_time_unix_nano,
        to: span.end_time_unix_nano,
        resource: resource.clone(),
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    };
    all.iter().map(|pair| (pair.key.clone(), text(pair).unwrap_or_default())).collect()
}
