//! E2B's control API over HTTP as catalog and as resumer.
//!
//! Nothing here retries or has a clock of its own but the connect timeout: the resolver bounds the time
//! and cancels by dropping. Answers are read piece by piece and refused beyond a bound; their content
//! type is not looked at, since what is not the expected JSON is refused anyway.

mod catalog;
mod detail;
mod resumer;
mod wire;

pub use self::{catalog::RestCatalog, resumer::RestResumer};
