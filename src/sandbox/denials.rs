//! Refusals that concern one caller's credentials only, remembered for a while: a wrong token is
//! answered without asking again, and never speaks for another token.

use std::time::Duration;

use tokio::time::Instant;

use super::entry::Refusal;
use crate::types::CredentialDigest;

/// Oldest first; bounded, because tokens are the caller's to invent.
#[derive(Debug, Default)]
pub(crate) struct Denials(Vec<Denied>);

#[derive(Debug)]
struct Denied {
    digest: CredentialDigest,
    refusal: Refusal,
    learned: Instant,
    until: Instant,
}

impl Denials {
    const MAX: usize = 16;

    pub(crate) fn remember(&mut self, digest: CredentialDigest, refusal: Refusal, now: Instant, ttl: Duration) {
        self.0.retain(|denied| denied.digest != digest && denied.until > now);
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push(Denied { digest, refusal, learned: now, until: now + ttl });
    }

    /// What these credentials were told since `since`, or recently enough.
    pub(crate) fn get(&self, digest: CredentialDigest, since: Instant, now: Instant) -> Option<Refusal> {
        self.0
            .iter()
            .find(|denied| denied.digest == digest && (now < denied.until || denied.learned >= since))
            .map(|denied| denied.refusal.clone())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
