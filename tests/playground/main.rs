//! The playground, `client-proxy dev`.
#![cfg(feature = "dev")]

mod api;
mod calls;
mod directories;
mod domain;
mod doors;
mod end;
mod envd;
mod files;
mod full;
mod house;
mod interpreter;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod processes;
mod remains;
#[path = "../support/mod.rs"]
mod support;
mod watching;
