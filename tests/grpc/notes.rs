//! A gRPC service in a sandbox, and its client, as generated code would have them.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::uri::PathAndQuery;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{sync::mpsc, task::JoinSet};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    client,
    metadata::MetadataMap,
    server,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use tower::service_fn as serve;

use crate::support::listen;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Note {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) data: Bytes,
    #[prost(uint32, tag = "3")]
    pub(crate) count: u32,
}

pub(crate) fn note(text: &str) -> Note {
    Note { text: text.into(), ..Note::default() }
}

type Codec = ProstCodec<Note, Note>;

/// What the service has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    pub(crate) calls: AtomicUsize,
    /// Calls that ended before they were answered.
    pub(crate) cancelled: AtomicUsize,
    pub(crate) heads: Mutex<Vec<http::request::Parts>>,
}

impl Seen {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.cancelled.load(SeqCst)
    }
}

/// The service, until dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Service {
    pub(crate) fn start() -> Self {
        Self::with_streams(200)
    }

    /// Each connection takes so many calls at once.
    pub(crate) fn with_streams(max: u32) -> Self {
        let listener = listen("127.0.0.1:0");
        let address = listener.local_addr().expect("an address");
        let (seen, mut tasks) = (Arc::<Seen>::default(), JoinSet::new());
        let counted = seen.clone();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                counted.connections.fetch_add(1, SeqCst);
                let seen = counted.clone();
                open.spawn(async move {
                    let service = service_fn(move |request| {
                        let seen = seen.clone();
                        async move { Ok::<_, Infallible>(call(request, seen).await) }
                    });
                    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.max_concurrent_streams(max);
                    let _ = builder.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { address, seen, _tasks: tasks }
    }
}

/// Counts a call that is dropped before its end.
struct Counted(Arc<Seen>, bool);

impl Counted {
    fn done(mut self) {
        self.1 = true;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !self.1 {
            self.0.cancelled.fetch_add(1, SeqCst);
        }
    }
}

async fn call(request: http::Request<Incoming>, seen: Arc<Seen>) -> http::Response<Body> {
    let (head, body) = request.into_parts();
    seen.heads.lock().expect("no panic").push(head.clone());
    seen.calls.fetch_add(1, SeqCst);
    let path = head.uri.path().to_owned();
    let request = http::Request::from_parts(head, body);
    let mut grpc = server::Grpc::new(Codec::default());
    match &*path {
        "/test.Notes/Echo" => grpc.unary(serve(echo), request).await,
        "/test.Notes/Hang" => {
            let hang = move |_: Request<Note>| {
                let counted = Counted(seen.clone(), false);
                async move {
                    let _counted = counted;
                    std::future::pending::<Result<Response<Note>, Status>>().await
                }
            };
            grpc.unary(serve(hang), request).await
        }
        "/test.Notes/List" => grpc.server_streaming(serve(list), request).await,
        "/test.Notes/Sum" => grpc.client_streaming(serve(sum), request).await,
        "/test.Notes/Talk" => {
            let talk = move |request: Request<Streaming<Note>>| {
                let counted = Counted(seen.clone(), false);
                async move { Ok::<_, Status>(Response::new(answers(request.into_inner(), counted))) }
            };
            grpc.streaming(serve(talk), request).await
        }
        _ => Status::unimplemented("no such method").into_http(),
    }
}

/// Its metadata come back, before the message and behind it; `fail` fails.
async fn echo(request: Request<Note>) -> Result<Response<Note>, Status> {
    let metadata = request.metadata().clone();
    if request.get_ref().text == "fail" {
        let mut status =
            Status::with_details(tonic::Code::FailedPrecondition, "as planned", Bytes::from_static(b"why"));
        status.metadata_mut().insert("x-more", "told".parse().expect("ASCII"));
        return Err(status);
    }
    let mut response = Response::new(request.into_inner());
    if let Some(value) = metadata.get("x-asked") {
        response.metadata_mut().insert("x-answered", value.clone());
    }
    if let Some(value) = metadata.get_bin("x-asked-bin") {
        response.metadata_mut().insert_bin("x-answered-bin", value.clone());
    }
    Ok(response)
}

/// So many notes with as much data as the first.
async fn list(request: Request<Note>) -> Result<Response<impl Stream<Item = Result<Note, Status>> + Send>, Status> {
    let asked = request.into_inner();
    let notes = (0..asked.count).map(move |count| Ok(Note { count, ..asked.clone() }));
    Ok(Response::new(stream::iter(notes)))
}

async fn sum(request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
    let mut notes = request.into_inner();
    let mut sum = Note::default();
    while let Some(note) = notes.message().await? {
        sum.text += &note.text;
        sum.count += 1;
    }
    Ok(Response::new(sum))
}

fn answers(notes: Streaming<Note>, counted: Counted) -> impl Stream<Item = Result<Note, Status>> + Send {
    stream::unfold((notes, counted), |(mut notes, counted)| async move {
        match notes.message().await {
            Ok(Some(note)) => Some((Ok(Note { text: format!("re: {}", note.text), ..note }), (notes, counted))),
            Ok(None) => {
                counted.done();
                None
            }
            Err(status) => Some((Err(status), (notes, counted))),
        }
    })
}

/// The client.
#[derive(Clone)]
pub(crate) struct Notes(client::Grpc<Channel>);

impl Notes {
    /// Speaks HTTP/2 with the proxy; the sandbox is `host`.
    pub(crate) async fn connect(proxy: SocketAddr, host: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{proxy}")).expect("a URL");
        let endpoint = endpoint.origin(format!("http://{host}").parse().expect("a URL"));
        Self(client::Grpc::new(endpoint.connect().await.expect("a connection")))
    }

    async fn ready(&mut self, method: &str) -> (PathAndQuery, Codec) {
        self.0.ready().await.expect("an open connection");
        (format!("/test.Notes/{method}").parse().expect("a path"), Codec::default())
    }

    pub(crate) async fn unary(&mut self, method: &str, request: Request<Note>) -> Result<Response<Note>, Status> {
        let (path, codec) = self.ready(method).await;
        self.0.unary(request, path, codec).await
    }

    pub(crate) async fn echo(&mut self, text: &str) -> Result<String, Status> {
        Ok(self.unary("Echo", Request::new(note(text))).await?.into_inner().text)
    }

    pub(crate) async fn list(&mut self, asked: Note) -> Result<Streaming<Note>, Status> {
        let (path, codec) = self.ready("List").await;
        Ok(self.0.server_streaming(Request::new(asked), path, codec).await?.into_inner())
    }

    pub(crate) async fn sum(&mut self, notes: Vec<Note>) -> Result<Note, Status> {
        let (path, codec) = self.ready("Sum").await;
        Ok(self.0.client_streaming(Request::new(stream::iter(notes)), path, codec).await?.into_inner())
    }

    /// Notes that are sent go up one by one; the answers come back.
    pub(crate) async fn talk(&mut self) -> Result<(mpsc::UnboundedSender<Note>, Streaming<Note>), Status> {
        let (path, codec) = self.ready("Talk").await;
        let (say, said) = mpsc::unbounded_channel();
        let notes = stream::unfold(said, |mut said| async move { said.recv().await.map(|note| (note, said)) }).boxed();
        Ok((say, self.0.streaming(Request::new(notes), path, codec).await?.into_inner()))
    }
}

/// The value of an ASCII entry.
pub(crate) fn value<'a>(metadata: &'a MetadataMap, name: &str) -> &'a str {
    metadata.get(name).map_or("", |value| value.to_str().expect("ASCII"))
}
