//! What whoever runs it sees of it, and how it ends.

mod drain;
mod lines;
mod operators;
mod process;
mod reload;
mod settings;
#[path = "../support/mod.rs"]
mod support;
