//! The playground, `client-proxy dev`.
#![cfg(feature = "dev")]

mod api;
mod calls;
mod domain;
mod end;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod processes;
