//! Input that means harm: over sockets, byte by byte, and the corpus of the fuzz targets.

mod chunks;
mod codings;
mod corpus;
mod fields;
mod hosts;
mod lengths;
mod lines;
mod rows;
mod sandbox;
#[path = "../support/mod.rs"]
mod support;
mod switches;
