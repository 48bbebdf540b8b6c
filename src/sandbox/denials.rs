//! Refusals that concern one caller's credentials only, remembered for a while: a wrong token is
//! answered without asking again, and never speaks for another token.

use tokio::time::Instant;

use super::entry::{At, Fresh, Policy, Refusal};
use crate::types::CredentialDigest;

/// Oldest first; bounded, because tokens are the caller's to invent.
#[derive(Debug, Default)]
pub(crate) struct Denials(Vec<Denied>);

#[derive(Debug)]
struct Denied {
    digest: CredentialDigest,
    refusal: Refusal,
    fresh: Fresh,
}

impl Denials {
    const MAX: usize = 16;

    pub(crate) fn remember(&mut self, digest: CredentialDigest, refusal: Refusal, fresh: Fresh, policy: &Policy) {
        let at = At { now: fresh.learned, term: fresh.term, former: None };
        let lasts = |denied: &Denied| denied.fresh.lasts(at, policy.negative_ttl);
        self.0.retain(|denied| denied.digest != digest && lasts(denied));
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push(Denied { digest, refusal, fresh });
    }

    /// What these credentials were told since `since`, or recently enough.
    pub(crate) fn get(&self, digest: CredentialDigest, since: Instant, at: At, policy: &Policy) -> Option<Refusal> {
        let serves = |denied: &&Denied| denied.fresh.serves(since, at, policy.negative_ttl);
        self.0.iter().filter(|denied| denied.digest == digest).find(serves).map(|denied| denied.refusal.clone())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
