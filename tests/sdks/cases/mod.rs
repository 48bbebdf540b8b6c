//! The proxy's own errors, each with a sandbox that has it at every request; and those that no SDK meets.

mod stage;

use std::collections::BTreeSet;

pub(crate) use self::stage::Stage;

/// What is done with a sandbox: two plain requests, four Connect calls, a Connect stream, a probe, and, on a port
/// of the user's, a cell of code.
pub(crate) const OPERATIONS: [&str; 9] =
    ["read", "write", "list", "make_dir", "exists", "kill", "run", "is_running", "run_code"];

const ENVD: u16 = 49983;
/// The code interpreter's.
const PORT: u16 = 49999;

/// The proxy of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// As it comes.
    Plain,
    /// One request may wait, and one does.
    Full,
    /// It lets wait for longer than the test takes.
    Patient,
    /// It waits for no answer.
    Hasty,
    /// It goes to the sandboxes themselves, by one connection each.
    Direct,
    /// Its operator has switched waking off.
    Suspended,
    /// No path wakes.
    Ignoring,
    /// It serves one domain.
    Particular,
    /// Its client has just had the one wake of this minute; another proxy for each call, as the minute passes.
    Frugal,
    /// It shuts down while the request waits; another one for each call.
    Ending,
}

/// A sandbox whose requests all end in this error.
pub(crate) struct Case {
    /// The error's code; after a dash, what leads to it: for `sandbox_not_found` the reason.
    pub(crate) name: &'static str,
    pub(crate) at: At,
    pub(crate) sandbox: &'static str,
    pub(crate) operations: &'static [&'static str],
    /// What a hop between the SDK and the proxy adds to each head: lines. SDKs send no header fields of their
    /// user's to sandboxes.
    pub(crate) hop: &'static str,
    /// The name in the SDK's URL of sandboxes.
    pub(crate) host: &'static str,
}

const ADDRESS: &str = "127.0.0.1";

const fn case(name: &'static str, at: At, sandbox: &'static str) -> Case {
    Case { name, at, sandbox, operations: &OPERATIONS, hop: "", host: ADDRESS }
}

impl Case {
    const fn behind(mut self, hop: &'static str) -> Self {
        self.hop = hop;
        self
    }

    const fn under(mut self, host: &'static str) -> Self {
        self.host = host;
        self
    }

    const fn only(mut self, operations: &'static [&'static str]) -> Self {
        self.operations = operations;
        self
    }

    pub(crate) fn code(&self) -> &'static str {
        self.name.split('-').next().unwrap_or_default()
    }
}

/// What envd's token guards; user ports have another.
const OF_ENVD: &[&str] = OPERATIONS.split_at(8).0;
const OF_A_PORT: &[&str] = OPERATIONS.split_at(8).1;

/// The wake is under way already, kept so by the stage: nobody looks anything up in this time.
const BRIEFLY: &str = "X-Sandbox-Wake: wait=0.1\r\n";

pub(crate) const CASES: [Case; 27] = [
    case("too_many_held", At::Full, "wanted"),
    case("sandbox_not_found-unknown", At::Plain, "unknown"),
    case("sandbox_not_found-killed", At::Plain, "killed"),
    case("sandbox_not_found-auto_resume_off", At::Plain, "asleep"),
    case("sandbox_not_found-filesystem_only", At::Plain, "filesonly"),
    case("sandbox_not_found-expired", At::Plain, "expired"),
    case("sandbox_not_found-not_woken", At::Ignoring, "ignored"),
    case("access_denied", At::Plain, "secret").only(OF_ENVD),
    case("traffic_token_missing", At::Plain, "private").only(OF_A_PORT),
    case("traffic_token_invalid", At::Plain, "forged").only(OF_A_PORT),
    case("team_limit", At::Plain, "onetoomany"),
    case("control_plane_unavailable", At::Plain, "untold"),
    case("node_unavailable", At::Plain, "lost"),
    case("upstream_failed", At::Plain, "rude"),
    case("still_transitioning", At::Patient, "pausing").behind(BRIEFLY),
    case("hold_timeout", At::Patient, "slow").behind(BRIEFLY),
    case("waking", At::Patient, "drowsy").behind("X-Sandbox-Wake: async\r\n"),
    case("wakes_suspended", At::Suspended, "suspended"),
    case("too_many_wakes", At::Frugal, "another"),
    case("upstream_timeout", At::Hasty, "silent"),
    case("port_closed", At::Direct, "deaf"),
    case("too_many_connections", At::Direct, "tied"),
    // Whoever names the proxy itself, and not one of its `header_hosts`.
    case("invalid_host", At::Plain, "unknown").under("edge.example.test"),
    case("invalid_port", At::Plain, "unknown").under("client-proxy.example.test"),
    case("invalid_sandbox_id", At::Plain, "Not-An-Id"),
    case("unknown_domain", At::Particular, "unknown").under("49983-unknown.example.org"),
    case("draining", At::Ending, "slow"),
];

/// The port that an operation asks, as it asks no other.
pub(crate) fn port_of(operation: &str) -> u16 {
    if OF_A_PORT.contains(&operation) { PORT } else { ENVD }
}

/// The names in the SDKs' URLs.
pub(crate) fn names() -> BTreeSet<&'static str> {
    CASES.iter().map(|case| case.host).filter(|host| *host != ADDRESS).collect()
}

/// The codes that no SDK meets, and why.
const NEVER: [(&str, &str); 6] = [
    ("missing_header", "every request of an SDK's to a sandbox has both fields, once"),
    ("invalid_body", "the HTTP clients below the SDKs write chunks as they must be"),
    ("transfer_coding_not_supported", "they know no coding but chunked"),
    ("method_not_allowed", "they send CONNECT to a forward proxy only, which this is not"),
    ("protocol_not_supported", "they do not bootstrap other protocols over HTTP/2: terminals are Connect streams"),
    ("internal_route", "no operation asks envd for /init, /freeze and the like: the orchestrator does"),
];

/// The README's table of codes, which is that of the code: its own tests compare them.
fn documented() -> (Vec<&'static str>, Vec<&'static str>) {
    let lines = include_str!("../../../README.md").lines();
    let rows = lines.skip_while(|line| !line.starts_with("| `error` |")).take_while(|line| line.starts_with('|'));
    let words = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let (mut codes, mut reasons) = (Vec::new(), Vec::new());
    for row in rows.skip(2) {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        codes.extend(words(cells[0]));
        if cells[0].trim() == "`sandbox_not_found`" {
            reasons.extend(words(cells[5]).filter(|word| *word != "reason"));
        }
    }
    (codes, reasons)
}

#[test]
fn every_code_and_reason_has_a_case_or_cannot_be_met_by_an_sdk() {
    let (codes, reasons) = documented();
    assert!(codes.len() >= 28 && reasons.len() >= 6, "the README's table: {codes:?} {reasons:?}");
    let met: BTreeSet<_> = CASES.iter().map(Case::code).collect();
    let never: BTreeSet<_> = NEVER.iter().map(|(code, _)| *code).collect();
    assert!(met.is_disjoint(&never), "both met and never met: {:?}", met.intersection(&never));
    assert_eq!(met.union(&never).copied().collect::<BTreeSet<_>>(), codes.into_iter().collect());
    let told: BTreeSet<_> = CASES.iter().filter_map(|case| case.name.strip_prefix("sandbox_not_found-")).collect();
    assert_eq!(told, reasons.into_iter().collect());
    let names: BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), CASES.len(), "a name twice");
}
