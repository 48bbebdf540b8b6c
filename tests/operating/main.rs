//! What whoever runs it sees of it, and how it ends.

mod admin_pages;
mod admin_refusals;
mod allocator;
mod drain;
mod lines;
mod operators;
mod process;
mod reference;
mod reload;
mod settings;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
#[allow(dead_code, unreachable_pub, reason = "as in support")]
mod tls;
mod traces;
