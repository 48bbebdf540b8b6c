//! client-proxy

pub mod types;

pub mod config;
pub(crate) mod telemetry;

pub mod control;
pub mod forward;
pub mod sandbox;

#[cfg(feature = "dev")]
pub mod dev;
