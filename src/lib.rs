//! The edge reverse proxy in front of AI-agent sandboxes. A request to `{port}-{sandbox}.{domain}` finds
//! its sandbox wherever it runs; if the sandbox sleeps and its owner allowed it, the request is held, the
//! sandbox woken, and the request answered as if nothing had happened.
//!
//! # Reading order
//! `request::handle` is the story of one request. From there, down: `route` (who is meant),
//! [`sandbox`] (where it runs; waking), [`forward`] (there and back). The hard part is small and pure:
//! `sandbox::entry`, the state machine of one sandbox.
//!
//! # Floors
//! Imports only go down, never sideways; `tests/floor_plan.rs` sees to it. `ARCHITECTURE.md` has the plan
//! and its reasons.

// Floor 0: the nouns.
pub mod types;

// Floor 1: decided once, or said by one line of code to the whole house.
pub mod config;
pub mod route;
pub(crate) mod shutdown;
pub(crate) mod telemetry;

// Floor 2: who is where, how to ask, how to send.
pub mod control;
pub mod forward;
pub mod sandbox;

// Floor 3: sockets, the story of one request, the playground.
#[cfg(feature = "dev")]
pub mod dev;
pub(crate) mod edge;
pub(crate) mod request;

// The roof: everything wired.
pub mod app;
