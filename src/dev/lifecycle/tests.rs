//! The rules, row by row.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const OWNER: Caller = Caller::Owner(Duration::from_secs(20));

fn policy() -> Policy {
    Policy { on_timeout: OnTimeout::Pause, auto_resume: true, keep_memory: true, timeout: 60 * SECOND, retention: None }
}

fn running(policy: Policy, now: Instant) -> Lifecycle {
    Lifecycle::new(policy, now)
}

fn paused(policy: Policy, now: Instant, memory: bool) -> Lifecycle {
    let mut life = running(policy, now);
    assert_eq!(life.pause(memory), Ok(Step::Begin));
    life.pause_ended(now, true);
    life
}

#[test]
fn the_timeout_kills_by_default_and_pauses_where_asked() {
    let now = Instant::now();
    let life = running(Policy { on_timeout: OnTimeout::Kill, ..policy() }, now);
    assert_eq!(life.due(now + 59 * SECOND), None);
    assert_eq!(life.due(now + 60 * SECOND), Some(Due::Kill(Reason::Killed)));
    let life = running(policy(), now);
    assert_eq!(life.due(now + 60 * SECOND), Some(Due::Pause { memory: true }));
}

#[test]
fn an_owners_connect_extends_and_never_shortens() {
    let now = Instant::now();
    let mut life = running(policy(), now);
    assert_eq!(life.connect(now, OWNER), Ok(Step::Done));
    assert_eq!(life.deadline(), Some(now + 60 * SECOND));
    assert_eq!(life.connect(now, Caller::Owner(90 * SECOND)), Ok(Step::Done));
    assert_eq!(life.deadline(), Some(now + 90 * SECOND));
}

#[test]
fn set_timeout_may_shorten_and_a_refresh_may_not() {
    let now = Instant::now();
    let mut life = running(policy(), now);
    assert_eq!(life.refresh(now, SECOND), Ok(()));
    assert_eq!(life.deadline(), Some(now + 60 * SECOND));
    assert_eq!(life.set_timeout(now, SECOND), Ok(()));
    assert_eq!(life.deadline(), Some(now + SECOND));
    let mut life = paused(policy(), now, true);
    assert_eq!(life.set_timeout(now, SECOND), Err(Refusal::NotRunning));
}

#[test]
fn after_a_traffic_wake_it_lives_the_longer_of_300_s_and_its_timeout_at_creation() {
    let now = Instant::now();
    for (created, want) in [(60, 300), (7200, 7200)] {
        let mut life = paused(Policy { timeout: created * SECOND, ..policy() }, now, true);
        for _ in 0..3 {
            assert_eq!(life.connect(now, Caller::Traffic), Ok(Step::Begin));
            life.resume_ended(now, true);
            assert_eq!(life.deadline(), Some(now + want * SECOND));
            // Later calls of the owner do not change what a wake gives.
            assert_eq!(life.set_timeout(now, SECOND), Ok(()));
            assert_eq!(life.pause(true), Ok(Step::Begin));
            life.pause_ended(now, true);
        }
    }
}

#[test]
fn an_owners_connect_of_a_paused_one_uses_the_owners_timeout() {
    let now = Instant::now();
    let mut life = paused(policy(), now, true);
    assert_eq!(life.connect(now, OWNER), Ok(Step::Begin));
    assert_eq!(life.connect(now, OWNER), Ok(Step::Join));
    life.resume_ended(now, true);
    assert_eq!(life.deadline(), Some(now + 20 * SECOND));
}

#[test]
fn traffic_wakes_only_where_the_owner_allowed_it_and_memory_was_kept() {
    let now = Instant::now();
    let off = Policy { auto_resume: false, ..policy() };
    let mut life = paused(off, now, true);
    let barred = Err(Refusal::Barred(Reason::AutoResumeOff));
    assert_eq!(life.connect(now, Caller::Traffic), barred);
    // An owner's wake does not open it for traffic afterwards.
    assert_eq!(life.connect(now, OWNER), Ok(Step::Begin));
    life.resume_ended(now, true);
    assert_eq!(life.pause(true), Ok(Step::Begin));
    assert_eq!(life.connect(now, Caller::Traffic), barred);
    let mut life = paused(policy(), now, false);
    let files = Err(Refusal::Barred(Reason::FilesystemOnly));
    assert_eq!(life.connect(now, Caller::Traffic), files);
    assert_eq!(life.connect(now, OWNER), Ok(Step::Begin));
}

#[test]
fn pauses_are_joined_and_repeated_ones_refused() {
    let now = Instant::now();
    let mut life = running(policy(), now);
    assert_eq!(life.pause(true), Ok(Step::Begin));
    assert_eq!(life.pause(true), Ok(Step::Join));
    assert_eq!(life.connect(now, OWNER), Ok(Step::Wait));
    assert_eq!(life.set_timeout(now, SECOND), Err(Refusal::Transitioning));
    life.pause_ended(now, true);
    assert_eq!(life.pauses(), 1);
    assert_eq!(life.pause(true), Err(Refusal::AlreadyPaused));
}

#[test]
fn what_fails_leaves_the_state_before() {
    let now = Instant::now();
    let mut life = running(policy(), now);
    let late = now + 60 * SECOND;
    assert_eq!(life.pause(true), Ok(Step::Begin));
    life.pause_ended(late, false);
    assert_eq!(life.phase(), Phase::Running { until: late + PAUSE_AGAIN });
    let mut life = paused(policy(), now, true);
    assert_eq!(life.connect(now, OWNER), Ok(Step::Begin));
    life.resume_ended(now, false);
    assert_eq!(life.phase(), Phase::Paused { since: now, memory: true });
}

#[test]
fn the_end_is_final_also_for_work_under_way() {
    let now = Instant::now();
    let gone = Refusal::Gone(Reason::Killed);
    let mut life = running(policy(), now);
    assert_eq!(life.pause(true), Ok(Step::Begin));
    assert_eq!(life.end(Reason::Killed), Ok(()));
    life.pause_ended(now, true);
    assert_eq!(life.end(Reason::Killed), Err(gone));
    assert_eq!(life.pause(true), Err(gone));
    assert_eq!(life.connect(now, OWNER), Err(gone));
    assert_eq!(life.connect(now, Caller::Traffic), Err(gone));
    assert_eq!(life.set_timeout(now, SECOND), Err(gone));
    assert_eq!(life.deadline(), None);
}

#[test]
fn a_paused_one_is_kept_for_its_retention() {
    let now = Instant::now();
    let life = paused(policy(), now, true);
    assert_eq!(life.deadline(), None);
    let life = paused(Policy { retention: Some(9 * SECOND), ..policy() }, now, true);
    assert_eq!(life.due(now + 8 * SECOND), None);
    assert_eq!(life.due(now + 9 * SECOND), Some(Due::Kill(Reason::Expired)));
}

#[test]
fn resume_is_for_paused_ones() {
    let now = Instant::now();
    let mut life = running(policy(), now);
    assert_eq!(life.resume(now, SECOND), Err(Refusal::AlreadyRunning));
    let mut life = paused(policy(), now, true);
    assert_eq!(life.resume(now, SECOND), Ok(Step::Begin));
    assert_eq!(life.resume(now, SECOND), Err(Refusal::AlreadyRunning));
}
