//! Answers are looked at before tonic reads them: it panics at `grpc-status-details-bin` that is not base64, which
//! nobody reads here, and takes the 403 of a gateway for the API's own no.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tonic::{Status, body::Body, transport::Channel};
use tower_service::Service;

/// An HTTP answer by whoever does not speak gRPC.
#[derive(Debug)]
pub(super) struct NotGrpc(pub(super) StatusCode);

impl fmt::Display for NotGrpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP status {} without a gRPC status (is the address right?)", self.0.as_u16())
    }
}

impl Error for NotGrpc {}

/// A channel whose answers are checked.
#[derive(Clone)]
pub(super) struct Checked(pub(super) Channel);

type BoxError = Box<dyn Error + Send + Sync>;

impl Service<Request<Body>> for Checked {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async { check(answer.await?).map_err(Into::into) })
    }
}

fn check(mut answer: Response<Body>) -> Result<Response<Body>, NotGrpc> {
    let is_told = answer.headers().contains_key(Status::GRPC_STATUS);
    if answer.status() != StatusCode::OK && !is_told {
        return Err(NotGrpc(answer.status()));
    }
    without_details(answer.headers_mut());
    Ok(answer.map(|body| {
        Body::new(body.map_frame(|mut frame| {
            if let Some(trailers) = frame.trailers_mut() {
                without_details(trailers);
            }
            frame
        }))
    }))
}

fn without_details(headers: &mut HeaderMap) {
    headers.remove("grpc-status-details-bin");
}
