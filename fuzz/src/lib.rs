//! What the fuzz targets try, and what must hold of each input. `tests/hostile/corpus.rs` of the proxy includes the
//! same files, and plays the seeds.

pub mod front;
pub mod host;
pub mod introduction;
pub mod reading;
