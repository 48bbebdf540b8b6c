//! Floor 1: what is counted, written down and traced. Every metric and label name is in `metrics`.

pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod traces;

pub(crate) use metrics::{Gauged, Metrics};
pub(crate) use traces::Traces;
