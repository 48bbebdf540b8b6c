//! The playground, `client-proxy dev`.
#![cfg(feature = "dev")]

mod api;
mod directories;
mod end;
mod files;
mod house;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod processes;
mod watching;
