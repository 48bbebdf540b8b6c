//! client-proxy

pub mod types;

pub mod config;

pub mod control;
pub mod sandbox;

#[cfg(feature = "dev")]
pub mod dev;

pub mod app;
