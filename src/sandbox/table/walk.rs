//! Walks over all entries, for operators: one shard is read-locked at a time, and of all that is seen no more is
//! kept than is asked for. Meanwhile a writer of this shard waits, and readers that come after it wait behind it: so
//! under the lock ids are compared and numbers copied, and all else is done afterwards.

use std::{cmp::Reverse, collections::BTreeMap, str::FromStr};

use tokio::time::Instant;

use super::Table;
use crate::{
    sandbox::{
        entry::Phase,
        slot::Slot,
        view::{Count, Page, Summary},
    },
    types::SandboxId,
};

/// What there can be most of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Wakes started since it is known.
    Wakes,
    /// Requests that wait now.
    Held,
    /// Requests since it is known.
    Requests,
}

impl By {
    pub(crate) const ALL: [Self; 3] = [Self::Wakes, Self::Held, Self::Requests];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Wakes => "wakes",
            Self::Held => "held",
            Self::Requests => "requests",
        }
    }

    fn count(self, slot: &Slot) -> u64 {
        match self {
            Self::Wakes => slot.wakes().into(),
            Self::Held => slot.entry.held() as u64,
            Self::Requests => slot.requests(),
        }
    }
}

impl FromStr for By {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|by| by.as_str() == word).ok_or(())
    }
}

impl Table {
    /// The entries in this phase (or in any) with the smallest ids after `after`, at most `limit`.
    pub(crate) fn page(&self, phase: Option<Phase>, after: Option<&SandboxId>, limit: usize, now: Instant) -> Page {
        let moment = self.moment(now);
        // One more tells whether there is another page.
        let mut found = Smallest::new(limit + 1);
        for slot in &self.map {
            let id = slot.key();
            let wanted = after.is_none_or(|after| id > after) && phase.is_none_or(|phase| slot.entry.phase() == phase);
            if wanted && found.takes(|last| id < last) {
                found.take(id.clone(), Count::of(&slot));
            }
        }
        let mut kept = found.kept;
        let more = kept.len() > limit;
        if more {
            kept.pop_last();
        }
        let next = kept.last_key_value().filter(|_| more).map(|(id, _)| id.clone());
        Page { sandboxes: kept.into_iter().map(|(id, count)| Summary::of(id, count, moment)).collect(), next }
    }

    /// The entries with the most of it, at most `limit`; among equals the smaller id comes first. None is shown that
    /// has none.
    pub(crate) fn top(&self, by: By, limit: usize, now: Instant) -> Vec<Summary> {
        let moment = self.moment(now);
        let mut found = Smallest::new(limit);
        for slot in &self.map {
            let (id, count) = (slot.key(), Reverse(by.count(&slot)));
            if count.0 > 0 && found.takes(|(last, of)| (&count, id) < (last, of)) {
                found.take((count, id.clone()), Count::of(&slot));
            }
        }
        found.kept.into_iter().map(|((_, id), count)| Summary::of(id, count, moment)).collect()
    }
}

/// What has the smallest keys so far.
struct Smallest<K, V> {
    /// Not 0.
    limit: usize,
    kept: BTreeMap<K, V>,
}

impl<K: Ord, V> Smallest<K, V> {
    fn new(limit: usize) -> Self {
        Self { limit, kept: BTreeMap::new() }
    }

    /// Whether a key is among the smallest; `precedes` compares it with the largest of these.
    fn takes(&self, precedes: impl FnOnce(&K) -> bool) -> bool {
        self.kept.len() < self.limit || self.kept.last_key_value().is_some_and(|(last, _)| precedes(last))
    }

    fn take(&mut self, key: K, value: V) {
        if self.kept.len() == self.limit {
            self.kept.pop_last();
        }
        self.kept.insert(key, value);
    }
}

#[cfg(test)]
mod tests;
