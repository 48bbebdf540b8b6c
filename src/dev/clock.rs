//! The time of day, as answers tell it.

use std::time::{Duration, SystemTime};

/// Since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Microseconds since 1970.
pub(crate) fn micros() -> u64 {
    u64::try_from(now().as_micros()).unwrap_or(u64::MAX)
}
