//! What came of every call, as a table for people, and what must not be in it.

use std::fmt::Write as _;

use crate::callers::Outcome;

/// What is expected, line by line: the case; then for each language what was raised or returned, and where. A star:
/// the caller does not get to read the proxy's words. After a plus: what the SDK asked for besides.
const EXPECTED: &str = include_str!("table.txt");

/// Where there are lies all the same: case, language, operations.
///
/// `port_closed`: a stream whose sandbox is there reads as one whose sandbox is not, in JavaScript; any other word of
/// Connect's has Python ask `/health`. `unknown_domain`: Node's `fetch` asks once more by another connection at a 421
/// (RFC 9110 §15.5.20), where the body is no stream; no sandbox is meant, and none wakes.
const LIES: &str = include_str!("lies.txt");

/// One call in one case.
pub(crate) struct Cell {
    pub(crate) case: &'static str,
    pub(crate) language: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) outcome: Outcome,
    /// What the SDK asked the proxy for.
    pub(crate) requests: Vec<String>,
    /// What the proxy says in this case.
    pub(crate) words: String,
}

impl Cell {
    fn text(&self) -> String {
        let told = match self.outcome.error.first() {
            Some(class) if self.outcome.message.contains(&self.words) => class.clone(),
            Some(class) => format!("{class}*"),
            None => self.outcome.value.to_string(),
        };
        let besides = self.requests.iter().skip(1);
        besides.fold(told, |told, request| format!("{told} + {request}"))
    }

    /// The sandbox is gone, asleep for good, or failed itself; anything else may pass.
    fn is_final(&self) -> bool {
        ["sandbox_not_found", "port_closed", "upstream_failed"].iter().any(|code| self.case.starts_with(code))
    }

    fn lies(&self) -> bool {
        let returned = self.outcome.error.is_empty();
        let may_return = self.operation == "is_running" && self.is_final();
        let missing = self.outcome.error.iter().any(|class| class.contains("NotFound") || class.contains("NotRunning"));
        let may_miss = self.case.starts_with("sandbox_not_found");
        returned && !may_return || missing && !may_miss || self.requests.len() != 1
    }
}

/// What every SDK did in every case.
pub(crate) struct Table(pub(crate) Vec<Cell>);

impl Table {
    /// Row by row what is expected.
    pub(crate) fn is_as_expected(&self) {
        let text = self.text();
        let same = text.lines().zip(EXPECTED.lines()).take_while(|(told, expected)| told == expected).count();
        assert!(
            text == EXPECTED,
            "table.txt differs from its line {} on; this was told:\n{text}{}",
            same + 1,
            self.strange()
        );
    }

    /// Nobody is told that something is not there, or is there already, because it cannot be told now, and no
    /// wording of ours has an SDK ask again: a probe wakes.
    pub(crate) fn lies_only_where_it_must(&self) {
        let lies = self.lines(|cell| cell.lies().then(|| format!("{} {}", cell.case, cell.language)));
        assert!(lies == LIES, "lies.txt is not this:\n{lies}");
    }

    /// What was raised in other words than the proxy's.
    fn strange(&self) -> String {
        let strange = self.0.iter().filter(|cell| cell.text().contains('*'));
        let line = |cell: &Cell| {
            let first = cell.outcome.message.lines().next().unwrap_or_default();
            format!("{} {} {}: {first}\n", cell.case, cell.language, cell.operation)
        };
        strange.map(line).collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut cases: Vec<_> = self.0.iter().map(|cell| cell.case).collect();
        // The second language has the same ones.
        cases.dedup();
        cases.truncate(cases.len() / 2);
        for case in cases {
            let _ = writeln!(text, "{case}");
            let here =
                |cell: &Cell| (cell.case == case).then(|| format!("    {:<11} {:<42}", cell.language, cell.text()));
            text += &self.lines(here);
        }
        text
    }

    /// A line for each name that cells are given: the name, and their operations.
    fn lines(&self, name: impl Fn(&Cell) -> Option<String>) -> String {
        let mut lines: Vec<(String, String)> = Vec::new();
        for cell in &self.0 {
            let Some(name) = name(cell) else { continue };
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, operations)) => {
                    let _ = write!(operations, " {}", cell.operation);
                }
                None => lines.push((name, cell.operation.to_owned())),
            }
        }
        lines.iter().fold(String::new(), |text, (name, operations)| text + name + " " + operations + "\n")
    }
}
