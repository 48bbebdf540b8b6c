//! HTTP/2 towards the sandbox: gRPC from end to end, and what only bare frames can show.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod client;
mod ends;
mod frames;
mod heads;
mod lives;
mod notes;
mod parties;
mod sharing;
mod trailers;
