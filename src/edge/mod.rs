//! Floor 3: towards clients and operators. Listeners hand sockets to workers; a worker serves its
//! connections with the handler it was given; it knows nothing of sandboxes.

pub(crate) mod admin;
mod arrival;
mod blocks;
pub(crate) mod conn;
pub(crate) mod introduction;
mod io;
mod linger;
pub(crate) mod listener;
pub(crate) mod operators;
pub(crate) mod proxy_protocol;
pub(crate) mod room;
pub(crate) mod socket;
mod streams;
pub(crate) mod tls;
pub(crate) mod watch;
pub(crate) mod worker;
