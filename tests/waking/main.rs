//! Sandboxes that sleep, move or end, and a control plane that tells of it, or does not.

mod bodies;
mod crowds;
mod frozen;
mod not_there;
mod outages;
mod outcomes;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
