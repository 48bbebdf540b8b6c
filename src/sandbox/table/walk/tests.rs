//! Pages and tops over many sandboxes.

use super::*;
use crate::{
    sandbox::{
        entry::{Answer, Event},
        ports::Located,
        table::tests::{table as empty, want_of},
    },
    types::{Node, Placement, Reason},
};

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);

fn id(n: usize) -> SandboxId {
    SandboxId::new(&format!("s{n:04}")).expect("an id")
}

/// Sandboxes of these numbers: the even ones run, the odd ones are gone.
fn table(numbers: impl IntoIterator<Item = usize>, now: Instant) -> Table {
    let table = empty(1_000_000);
    for n in numbers {
        settle(&table, n, now);
    }
    table
}

fn settle(table: &Table, n: usize, now: Instant) {
    let Some(crate::sandbox::entry::Launch::Locate { flight }) = want_of(table, &id(n), now).launch else {
        panic!("no lookup")
    };
    let running = Placement { node: Node::new("10.0.0.1"), execution: None, access: None, until: None };
    let located = if n.is_multiple_of(2) { Located::Running(running) } else { Located::Gone(Reason::Killed) };
    table.apply(&id(n), Event::Located { flight, outcome: Ok(located) }, now);
}

/// All pages, one after the other.
fn pages(table: &Table, phase: Option<Phase>, limit: usize, now: Instant) -> Vec<Vec<SandboxId>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = table.page(phase, after.as_ref(), limit, now);
        pages.push(page.sandboxes.iter().map(|summary| summary.id().clone()).collect());
        match page.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn pages_have_every_sandbox_once_and_in_order() {
    let now = Instant::now();
    let table = table((0..100).rev(), now);
    for limit in [1, 7, 99, 100, 101] {
        let pages = pages(&table, None, limit, now);
        assert_eq!(pages.len(), 100_usize.div_ceil(limit), "no empty page at the end: {limit}");
        assert!(pages.iter().all(|page| page.len() <= limit));
        assert_eq!(pages.concat(), (0..100).map(id).collect::<Vec<_>>(), "{limit}");
    }
}

#[test]
fn pages_of_one_state_have_no_other() {
    let now = Instant::now();
    let table = table(0..100, now);
    let running = pages(&table, Some(Phase::Running), 9, now).concat();
    assert_eq!(running, (0..100).step_by(2).map(id).collect::<Vec<_>>());
    assert_eq!(pages(&table, Some(Phase::Asleep), 9, now), [[]]);
}

#[test]
fn a_page_goes_on_where_the_last_one_ended_though_that_sandbox_is_gone() {
    let now = Instant::now();
    let table = table(0..20, now);
    let next = table.page(None, None, 10, now).next;
    assert_eq!(next, Some(id(9)));
    table.map.remove(&id(9));
    settle(&table, 100, now);
    let rest = table.page(None, next.as_ref(), 100, now);
    assert_eq!(rest.sandboxes.len(), 11);
    assert_eq!((rest.sandboxes[0].id(), rest.next), (&id(10), None));
}

#[test]
fn the_top_has_those_with_the_most_and_among_equals_the_smaller_id_first() {
    let now = Instant::now();
    let table = table(0..10, now);
    for (n, requests) in [(3, 5), (8, 9), (2, 5)] {
        (0..requests).for_each(|_| drop(table.route(&id(n), now)));
    }
    let ids = |by, limit| table.top(by, limit, now).iter().map(|one| one.id().clone()).collect::<Vec<_>>();
    assert_eq!(ids(By::Requests, 4), [8, 2, 3, 0].map(id));
    assert_eq!(ids(By::Requests, 1000).len(), 10);
    assert_eq!(ids(By::Held, 4), [], "who has none is not shown");
    let later = now + 2 * SECOND;
    let held: Vec<_> = [1, 5, 5].map(|n| want_of(&table, &id(n), later)).into_iter().collect();
    assert!(held.iter().all(|act| matches!(act.answer, Answer::Park(_))));
    assert_eq!(ids(By::Held, 4), [5, 1].map(id));
}
