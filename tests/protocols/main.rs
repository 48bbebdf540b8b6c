//! What else than plain HTTP/1.1 goes through: HTTP/2, WebSocket over both, streams that do not end.

mod descriptors;
mod draining;
#[path = "../support/frames.rs"]
mod frames;
mod http2;
mod streaming;
#[path = "../support/mod.rs"]
mod support;
mod upgrades;
mod websocket;
