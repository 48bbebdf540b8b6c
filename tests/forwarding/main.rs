//! The way of a request and its answer: who is meant, over which connection, and what becomes of both.

mod addressing;
mod bodies;
mod closed_ports;
mod direct_mode;
mod framing;
mod heads;
#[path = "../support/mod.rs"]
mod support;
mod upstream_connections;
