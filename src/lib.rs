//! client-proxy

pub mod types;

pub mod config;
pub(crate) mod route;
pub(crate) mod shutdown;
pub(crate) mod telemetry;

pub mod control;
pub mod forward;
pub mod sandbox;

pub(crate) mod edge;
pub(crate) mod request;

#[cfg(feature = "dev")]
pub mod dev;

pub mod app;
