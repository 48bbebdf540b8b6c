//! The playground, `client-proxy dev`.
#![cfg(feature = "dev")]

mod api;
mod calls;
mod clearing;
mod dials;
mod directories;
mod domain;
mod doors;
mod end;
mod envd;
mod files;
mod full;
mod house;
mod interpreter;
mod pausing;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod processes;
mod ranges;
mod refusals;
mod remains;
mod shown;
mod starts;
#[path = "../support/mod.rs"]
mod support;
mod watching;
