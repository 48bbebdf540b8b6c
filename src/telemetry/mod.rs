//! Floor 1: what is counted, written down and traced. Every metric and label name is in `metrics`.

pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod traces;
mod verbosity;

pub(crate) use self::{
    metrics::{Gauged, Metrics},
    traces::Traces,
    verbosity::Verbosity,
};
