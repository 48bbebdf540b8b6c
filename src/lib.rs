//! client-proxy

pub mod types;

pub mod config;
#[cfg_attr(not(test), expect(dead_code, reason = "request/ will call it"))]
mod route;

pub mod control;
pub mod sandbox;

#[cfg(feature = "dev")]
pub mod dev;
