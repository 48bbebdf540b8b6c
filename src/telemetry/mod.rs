//! Floor 1: what is counted, written down and traced. Every metric and label name is in `metrics`.

pub(crate) mod log;
pub(crate) mod metrics;
mod quiet;
pub(crate) mod traces;
mod verbosity;

pub(crate) use self::{
    metrics::{Gauged, Metrics},
    quiet::Quiet,
    traces::Traces,
    verbosity::Verbosity,
};
