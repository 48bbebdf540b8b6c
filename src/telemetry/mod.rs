//! Floor 1: what is counted and written down. Every metric and label name is in `metrics`.

pub(crate) mod log;
pub(crate) mod metrics;

pub(crate) use metrics::{Gauged, Metrics};
