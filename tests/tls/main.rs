//! TLS with clients, and load balancers that name them.

mod bounds;
mod configured;
mod endings;
mod handshakes;
mod introductions;
mod renewal;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
#[allow(dead_code, unreachable_pub, reason = "as in support")]
mod tls;
