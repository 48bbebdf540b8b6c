//! Input that means harm: over sockets, byte by byte, and the corpus of the fuzz targets.

mod chunks;
mod codings;
mod corpus;
mod early;
mod fields;
mod floods;
#[path = "../support/frames.rs"]
mod frames;
mod hosts;
mod late;
mod lengths;
mod lines;
mod rows;
mod sandbox;
mod slow;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod switches;
