//! The playground, `client-proxy dev`.
#![cfg(feature = "dev")]

mod api;
mod end;
mod interpreter;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod processes;
