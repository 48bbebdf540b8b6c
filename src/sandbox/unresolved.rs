//! Why a request does not get its sandbox, as far as that is known here.

use std::{sync::Arc, time::Duration};

use super::entry::Refusal;
use crate::types::{Denial, Reason};

/// Why a request did not get its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    #[error("the sandbox is not there: {}", .0.as_str())]
    Gone(Reason),
    #[error("the credentials do not open it: {0:?}")]
    Denied(Denial),
    #[error("the team's limit is reached: {0}")]
    Exhausted(Arc<str>),
    #[error("the control plane gives no answer")]
    Unavailable,
    #[error("too many requests are held")]
    TooManyHeld,
    #[error("an operator switched waking off")]
    Suspended(Duration),
    #[error("the client caused as many wakes as it may")]
    TooManyWakes(Duration),
    #[error("it is being woken, and the request does not wait for that")]
    Waking,
    #[error("still transitioning at the end of the hold time")]
    StillTransitioning,
    #[error("not there at the end of the hold time")]
    HoldTimeout,
    #[error("woken, and gone again each time")]
    Restless,
}

impl From<Refusal> for Unresolved {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Gone(reason) => Self::Gone(reason),
            Refusal::Denied(denial) => Self::Denied(denial),
            Refusal::Exhausted(message) => Self::Exhausted(message),
            Refusal::Unavailable => Self::Unavailable,
            Refusal::TooManyHeld => Self::TooManyHeld,
            Refusal::Suspended(left) => Self::Suspended(left),
            Refusal::TooManyWakes(left) => Self::TooManyWakes(left),
            Refusal::Restless => Self::Restless,
        }
    }
}
