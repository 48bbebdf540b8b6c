//! Floor 1: what is counted and written down. Every metric and label name is in `metrics`.

pub(crate) mod log;
pub(crate) mod metrics;
mod verbosity;

pub(crate) use self::{
    metrics::{Gauged, Metrics},
    verbosity::Verbosity,
};
