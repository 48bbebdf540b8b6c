//! What happened to one sandbox lately, for whoever must know at night why it answers as it does.
//!
//! It stands beside the entry, which knows nothing of it: the event goes through [`History::apply`], and what
//! became of the entry is written down. A request that finds its sandbox running changes nothing and is not
//! written down, nor is news of a flight or a place that nobody waits for any more.

use std::time::Duration;

use super::entry::{Act, Answer, Entry, Event, Glance, Launch, Phase, Policy, Step};
use crate::types::{Generation, Node};

pub(crate) use self::words::{Cause, What, outcome_word};

#[cfg(test)]
mod tests;
mod words;

/// One sandbox's.
///
/// A record has 40 bytes, and room is made for 2, 4, 8, 16 of them: of an idle sandbox that runs there are two (its
/// lookup and the answer), 136 bytes with this itself, and of none more than 696.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The last of them, oldest first, each beginning in the state in which the one before it ended.
    records: Vec<Record>,
    last_wake: Option<LastWake>,
}

/// The last wake that ended, also when so much happened since that no record tells of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastWake {
    pub(crate) cause: Cause,
    pub(crate) took: Duration,
    /// In the table's milliseconds.
    pub(crate) at: u64,
}

/// Something that happened, maybe several times on end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) what: What,
    pub(crate) cause: Cause,
    pub(crate) before: Phase,
    pub(crate) after: Phase,
    /// Where it runs, as was learned then.
    pub(crate) node: Option<Node>,
    pub(crate) times: u32,
    /// When it happened first, in the table's milliseconds.
    pub(crate) first: u64,
    /// And last.
    pub(crate) last: u64,
}

impl History {
    pub(crate) const MAX: usize = 16;

    /// Gives the event to the entry, and writes down what came of it. `at`: the table's milliseconds.
    pub(crate) fn apply(&mut self, entry: &mut Entry, event: Event<'_>, step: Step, policy: &Policy, at: u64) -> Act {
        let (news, before) = (News::of(&event), entry.glance());
        let act = entry.on(event, step, policy);
        let after = entry.glance();
        if let Some((what, cause)) = news.came_to(before, &act, after) {
            // Whoever waited for the lock looked at the clock before that.
            let at = at.max(self.records.last().map_or(0, |last| last.last));
            let learned = matches!(cause, Cause::Running | Cause::Ok);
            let route = entry.known().filter(|_| learned).map(|known| &known.route);
            let node = route.and_then(|route| route.placement.node.clone());
            if what == What::WakeEnded {
                self.last_wake = Some(LastWake { cause, took: news.took(), at });
            }
            let (before, after) = (before.phase, after.phase);
            self.write(Record { what, cause, before, after, node, times: 1, first: at, last: at });
        }
        act
    }

    /// Oldest first.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn last_wake(&self) -> Option<LastWake> {
        self.last_wake
    }

    /// Whether there is such a sandbox, or was: anybody can ask for one that never was.
    pub(crate) fn tells_of_a_sandbox(&self) -> bool {
        self.records.iter().any(|record| matches!(record.cause, Cause::Running | Cause::Asleep | Cause::Ok))
    }

    fn write(&mut self, mut record: Record) {
        if record.what == What::Refreshed {
            // One record for question and answer, if nothing happened in between.
            match self.records.pop_if(|last| last.what == What::LookupStarted && last.times == 1) {
                Some(question) => record.before = question.before,
                None => record.what = What::LookupEnded,
            }
        }
        if let Some(last) = self.records.last_mut().filter(|last| last.is_like(&record)) {
            return last.add(&record);
        }
        if self.records.len() == Self::MAX {
            self.records.remove(0);
        }
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(self.records.len().max(2));
        }
        self.records.push(record);
        self.fold();
    }

    /// A round that has come again (asked and failed; asked, asleep, a wake, denied) is told once, with a count:
    /// what comes again and again does not push out what it began with.
    fn fold(&mut self) {
        let count = self.records.len();
        for round in 2..=count / 2 {
            let (before, again) = self.records.split_at_mut(count - round);
            let once = &mut before[count - 2 * round..];
            if once.iter().zip(&*again).all(|(once, again)| once.is_like(again)) {
                once.iter_mut().zip(&*again).for_each(|(once, again)| once.add(again));
                return self.records.truncate(count - round);
            }
        }
    }
}

impl Record {
    /// Whether it tells the same, but for when and how often.
    fn is_like(&self, other: &Self) -> bool {
        let told = |record: &Self| (record.what, record.cause, record.before, record.after);
        told(self) == told(other) && self.node == other.node
    }

    fn add(&mut self, later: &Self) {
        self.times = self.times.saturating_add(later.times);
        self.last = later.last;
    }
}

/// What an event says, kept while the entry takes it in.
enum News {
    Wanted { of_envd: bool },
    Located(Cause),
    Resumed(Cause, Duration),
    Lost,
    NotAsked,
    NotThere(Generation, Cause),
    Changed,
    Forget,
}

impl News {
    fn of(event: &Event<'_>) -> Self {
        match event {
            Event::Wanted(want) => Self::Wanted { of_envd: want.credentials.port.is_envd() },
            Event::Located { outcome, .. } => Self::Located(Cause::of_lookup(outcome)),
            Event::Resumed { outcome, took, .. } => Self::Resumed(Cause::of_wake(outcome), *took),
            Event::Lost { .. } => Self::Lost,
            Event::NotAsked { .. } => Self::NotAsked,
            Event::NotThere { generation, finding } => Self::NotThere(*generation, Cause::of_finding(*finding)),
            Event::Changed => Self::Changed,
            Event::Forget => Self::Forget,
        }
    }

    /// How long a wake took.
    fn took(&self) -> Duration {
        match self {
            Self::Resumed(_, took) => *took,
            _ => Duration::ZERO,
        }
    }

    /// What there is to be told of it.
    fn came_to(&self, before: Glance, act: &Act, after: Glance) -> Option<(What, Cause)> {
        let again = act.launch.is_some();
        let landed = again || after.flights < before.flights;
        let same_life = before.generation.is_some() && before.generation == after.generation;
        match self {
            Self::Wanted { of_envd } => match (&act.launch, &act.answer) {
                (Some(Launch::Resume { .. }), _) if *of_envd => Some((What::WakeStarted, Cause::Envd)),
                (Some(Launch::Resume { .. }), _) => Some((What::WakeStarted, Cause::UserPort)),
                (Some(Launch::Locate { .. }), Answer::Go(_)) => Some((What::LookupStarted, Cause::Ahead)),
                (Some(Launch::Locate { .. }), _) => Some((What::LookupStarted, Cause::Wanted)),
                (None, Answer::Refuse(refusal)) => Some((What::Refused, Cause::of_refusal(refusal))),
                (None, _) => None,
            },
            Self::Located(_) if again => Some((What::LookupEnded, Cause::Overtaken)),
            Self::Located(Cause::Running) if landed && same_life => Some((What::Refreshed, Cause::Running)),
            Self::Located(cause) if landed => Some((What::LookupEnded, *cause)),
            Self::Resumed(cause, _) if landed => Some((What::WakeEnded, *cause)),
            Self::Lost if landed && before.phase == Phase::Resuming => Some((What::WakeEnded, Cause::Lost)),
            Self::NotAsked if landed => Some((What::WakeEnded, Cause::NotAsked)),
            Self::Lost if landed => Some((What::LookupEnded, Cause::Lost)),
            Self::Located(_) | Self::Resumed(..) | Self::Lost | Self::NotAsked => None,
            // Of another life it is stale news.
            Self::NotThere(generation, cause) => {
                (before.generation == Some(*generation)).then_some((What::NotThere, *cause))
            }
            Self::Forget => Some((What::Forgotten, Cause::Operator)),
            Self::Changed => (before.phase != after.phase).then_some((What::Forgotten, Cause::Catalog)),
        }
    }
}
