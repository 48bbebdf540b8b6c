//! What callers are told, in what they can read, and what makes them do next: the proxy's own answers, and what wakes.

mod allowance;
mod asking;
mod cors;
mod cuts;
mod ends;
mod envd;
#[path = "../support/frames.rs"]
mod frames;
mod lines;
mod media;
mod navigation;
mod reader;
mod rpc;
mod rules;
#[path = "../support/mod.rs"]
mod support;
mod switch;
mod waits;
