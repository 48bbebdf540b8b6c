//! Floor 2: who is where, and waking.

pub mod ports;
