//! The Connect protocol's server side with the JSON codec (connectrpc.com/docs/protocol): unary calls,
//! server streams and client streams as axum routes. Nothing of a service stands here.
//!
//! ```ignore
//! async fn stat(envd: Arc<Envd>, call: Call, request: StatRequest) -> Result<StatResponse, rpc::Error>;
//! async fn start(.., request: StartRequest) -> Result<impl Stream<Item = Result<Answer, rpc::Error>>, rpc::Error>;
//! async fn stream_input(.., requests: Messages<Input>) -> Result<Nothing, rpc::Error>;
//!
//! Router::new()
//!     .route("/filesystem.Filesystem/Stat", rpc::unary(rpc::SHORT, stat))
//!     .route("/process.Process/Start", rpc::server_stream(rpc::SHORT, start))
//!     .route("/process.Process/StreamInput", rpc::client_stream(rpc::INPUT, stream_input))
//! ```

mod call;
mod envelope;
mod error;
mod json;
mod keepalive;
mod reading;

use std::{future::Future, io};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodRouter, post},
};
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout_at;

use self::reading::Reading;
pub(crate) use self::{
    call::Call,
    envelope::Messages,
    error::{Code, Error},
    json::{Blob, Int64},
    keepalive::keep_alive,
    reading::{INPUT, SHORT},
};

const UNARY: &str = "application/json";
const STREAM: &str = "application/connect+json";
const STREAM_ENCODING: &str = "connect-content-encoding";

/// What services must be: cheap to clone, an `Arc` as a rule.
pub(crate) trait Service: Clone + Send + Sync + 'static {}
impl<S: Clone + Send + Sync + 'static> Service for S {}

/// One message there, of so many bytes at most, and one back. An error is the answer's status and a JSON body.
pub(crate) fn unary<S, Q, A, F, H>(longest: usize, handler: H) -> MethodRouter<S>
where
    S: Service,
    Q: DeserializeOwned + Send + 'static,
    A: Serialize,
    F: Future<Output = Result<A, Error>> + Send,
    H: Fn(S, Call, Q) -> F + Clone + Send + Sync + 'static,
{
    post(async move |State(state): State<S>, request: Request| {
        if !is_of_kind(request.headers(), UNARY) {
            return wrong_kind(UNARY);
        }
        let outcome = async {
            let call = call(request.headers(), header::CONTENT_ENCODING.as_str())?;
            let deadline = call.deadline;
            let answer = async {
                // Until the answer is there: the message is in memory as long.
                let mut reading = Reading::new(request.into_body(), longest);
                let message = envelope::parse(&reading.whole().await?)?;
                handler(state, call, message).await
            };
            before(deadline, answer).await
        };
        match outcome.await {
            Ok(answer) => Json(answer).into_response(),
            Err(error) => error.into_response(),
        }
    })
}

/// One message there, of so many bytes at most, and many back. The stream ends at the caller's deadline.
pub(crate) fn server_stream<S, Q, A, T, F, H>(longest: usize, handler: H) -> MethodRouter<S>
where
    S: Service,
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
    T: Stream<Item = Result<A, Error>> + Send + 'static,
    F: Future<Output = Result<T, Error>> + Send,
    H: Fn(S, Call, Q) -> F + Clone + Send + Sync + 'static,
{
    post(async move |State(state): State<S>, request: Request| {
        if !is_of_kind(request.headers(), STREAM) {
            return wrong_kind(STREAM);
        }
        let outcome = async {
            let call = call(request.headers(), STREAM_ENCODING)?;
            let deadline = call.deadline;
            let begun = async {
                let mut messages = Messages::new(request.into_body(), longest);
                let message = messages.next().await?.ok_or_else(|| Error::malformed("the request has no message"))?;
                if messages.next_bytes().await?.is_some() {
                    return Err(Error::malformed("the request has more than one message"));
                }
                handler(state, call, message).await
            };
            Ok((before(deadline, begun).await?, deadline))
        };
        match outcome.await {
            Ok((messages, deadline)) => {
                let end = async move {
                    match deadline {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                let messages = messages.map(Some).chain(stream::iter([None]));
                let late = stream::once(end).map(|()| Some(Err(Error::late())));
                stream_answer(stream::select_with_strategy(late, messages, |()| stream::PollNext::Left))
            }
            Err(error) => stream_answer(stream::iter([Some(Err::<A, _>(error))])),
        }
    })
}

/// Many messages there, each of so many bytes at most, and one back.
pub(crate) fn client_stream<S, Q, A, F, H>(longest: usize, handler: H) -> MethodRouter<S>
where
    S: Service,
    Q: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
    F: Future<Output = Result<A, Error>> + Send,
    H: Fn(S, Call, Messages<Q>) -> F + Clone + Send + Sync + 'static,
{
    post(async move |State(state): State<S>, request: Request| {
        if !is_of_kind(request.headers(), STREAM) {
            return wrong_kind(STREAM);
        }
        let outcome = async {
            let call = call(request.headers(), STREAM_ENCODING)?;
            let deadline = call.deadline;
            before(deadline, handler(state, call, Messages::new(request.into_body(), longest))).await
        };
        let outcome = outcome.await;
        stream_answer(stream::iter([Some(outcome), None]))
    })
}

/// What the head says of a call. `encoding`: the field that tells how its messages are compressed; none may be.
fn call(headers: &HeaderMap, encoding: &str) -> Result<Call, Error> {
    match headers.get(encoding).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Call::read(headers),
        Some(_) => Err(Error::new(Code::Unimplemented, format!("{encoding}: only identity is understood"))),
    }
}

async fn before<T>(
    deadline: Option<tokio::time::Instant>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match deadline {
        Some(at) => timeout_at(at, work).await.unwrap_or_else(|_| Err(Error::late())),
        None => work.await,
    }
}

/// Frames until the first error or the end (`None`), and the frame that says how it ended.
fn stream_answer<A: Serialize + Send + 'static>(
    messages: impl Stream<Item = Option<Result<A, Error>>> + Send + 'static,
) -> Response {
    let frames = stream::unfold(Some(Box::pin(messages)), async |messages| {
        let mut messages = messages?;
        let framed = match messages.next().await {
            Some(Some(Ok(message))) => envelope::message(&message),
            Some(Some(Err(error))) => Err(error),
            Some(None) | None => return Some((envelope::end(None), None)),
        };
        Some(match framed {
            Ok(frame) => (frame, Some(messages)),
            Err(error) => (envelope::end(Some(&error)), None),
        })
    });
    let body = Body::from_stream(frames.map(Ok::<_, io::Error>));
    ([(header::CONTENT_TYPE, STREAM)], body).into_response()
}

/// Parameters such as a charset are none of our business: JSON is UTF-8.
fn is_of_kind(headers: &HeaderMap, kind: &str) -> bool {
    let shown = headers.get(header::CONTENT_TYPE).and_then(|shown| shown.to_str().ok()).unwrap_or_default();
    shown.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(kind)
}

fn wrong_kind(kind: &'static str) -> Response {
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, [("accept-post", kind)]).into_response()
}

#[cfg(test)]
mod tests;
