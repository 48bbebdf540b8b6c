//! Clients: their connections, how long they may take, and what happens when they leave.

mod connections;
mod leaving;
mod patience;
#[path = "../support/mod.rs"]
mod support;
