//! The table for people, the JSON for programs, and whether anything went wrong.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    Bench, h2load,
    machine::{Machine, Tool},
    measure::Sample,
    scenarios::{Outcome, Row, Scenario},
    wrk,
};

/// All rows so far.
pub(crate) struct Report<'a> {
    bench: &'a Bench,
    rows: Vec<(&'static Scenario, Row)>,
}

const COLUMNS: [&str; 11] =
    ["scenario", "proxy", "figure", "unit", "ours ÷ it", "requests/s", "p50 ms", "p99 ms", "RSS MiB", "errors", ""];

impl<'a> Report<'a> {
    /// An empty one. Says at once what cannot be measured.
    pub(crate) fn new(bench: &'a Bench) -> Self {
        for tool in [wrk::TOOL, h2load::TOOL] {
            let needy = bench.options.scenarios().filter(|scenario| scenario.tool() == Some(tool));
            let names: Vec<_> = needy.map(|scenario| scenario.name).collect();
            if !names.is_empty() && !tool.installed() {
                let (Tool { program, package, .. }, names) = (tool, names.join(", "));
                eprintln!("\n!!! {program} is missing. SKIPPED: {names}.");
                eprintln!("!!! Install it: sudo apt-get install {package}\n");
            }
        }
        Self { bench, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, scenario: &'static Scenario, rows: Vec<Row>) {
        self.rows.extend(rows.into_iter().map(|row| (scenario, row)));
    }

    /// Why the run as a whole failed, if it did.
    pub(crate) fn wrong(&self) -> Option<String> {
        let outcomes = || self.rows.iter().map(|(_, row)| &row.outcome);
        let failed = outcomes().filter(|outcome| match outcome {
            Outcome::Measured(sample) => sample.errors > 0,
            Outcome::Failed(_) => true,
            Outcome::Missing(_) => false,
        });
        match failed.count() {
            0 if outcomes().any(|outcome| matches!(outcome, Outcome::Measured(_))) => None,
            0 => Some("nothing could be measured".to_owned()),
            count => Some(format!("errors in {count} rows, which are marked: their figures say nothing")),
        }
    }

    /// As Markdown.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![COLUMNS.map(str::to_owned)];
        lines.extend(self.rows.iter().map(|(scenario, row)| self.line(scenario, row)));
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
        let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
        let rule = widths.map(|width| "-".repeat(width));
        lines.insert(1, rule);
        let mut table = self.heading();
        for line in &lines {
            for (cell, width) in line.iter().zip(widths) {
                let _ = write!(table, "| {cell:width$} ");
            }
            table.push_str("|\n");
        }
        table
    }

    /// Every figure, unrounded.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        let Bench { options, machine, .. } = self.bench;
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(scenario, row)| {
                let mut told = json!({ "scenario": scenario.name, "proxy": row.peer.name, "unit": scenario.unit() });
                match &row.outcome {
                    Outcome::Measured(sample) => {
                        told["measured"] = json!(sample);
                        told["ours_to_it"] = json!(self.ratio(scenario, sample));
                    }
                    Outcome::Missing(why) => told["missing"] = json!(why),
                    Outcome::Failed(error) => told["failed"] = json!(format!("{error:#}")),
                }
                told["note"] = json!(row.note);
                told
            })
            .collect();
        let document = json!({
            "machine": machine,
            "version": env!("CARGO_PKG_VERSION"),
            "rounds": options.rounds(),
            "memory_rounds": options.memory_rounds(),
            "seconds": options.seconds(),
            "rows": rows,
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    fn heading(&self) -> String {
        let Bench { options, machine, .. } = self.bench;
        let Machine { processor, kernel, cores, .. } = machine;
        let (rounds, memory_rounds, seconds) = (options.rounds(), options.memory_rounds(), options.seconds());
        format!(
            "{processor}, {cores} cores, Linux {kernel}. Medians of {rounds} rounds of {seconds} s, \
             memory: of {memory_rounds} rounds.\n\n"
        )
    }

    fn line(&self, scenario: &Scenario, row: &Row) -> [String; COLUMNS.len()] {
        let mut line: [String; COLUMNS.len()] = Default::default();
        scenario.name.clone_into(&mut line[0]);
        row.peer.name.clone_into(&mut line[1]);
        scenario.unit().clone_into(&mut line[3]);
        let mut notes: Vec<String> = row.note.iter().cloned().collect();
        match &row.outcome {
            Outcome::Measured(sample) => {
                let cell =
                    |value: Option<f64>, digits| value.map_or(String::new(), |value| format!("{value:.digits$}"));
                line[2] = cell(Some(sample.figure), 1);
                line[4] = cell(self.ratio(scenario, sample), 2);
                line[5] = cell(sample.requests_per_second, 0);
                line[6] = cell(sample.p50_ms, 2);
                line[7] = cell(sample.p99_ms, 2);
                line[8] = cell(Some(sample.rss_mib), 1);
                line[9] = sample.errors.to_string();
                if let (Some(first), Some(last)) = (sample.first_byte_ms, sample.last_byte_ms) {
                    notes.push(format!("answered {first:.0} to {last:.0} ms after the release"));
                }
                if sample.errors > 0 {
                    notes.insert(0, "!!! ERRORS".to_owned());
                }
            }
            Outcome::Missing(why) => notes.insert(0, (*why).to_owned()),
            // The whole story is on stderr and in the JSON.
            Outcome::Failed(error) => notes.insert(0, format!("!!! FAILED: {error}")),
        }
        line[10] = notes.join("; ").replace(['\n', '|'], " ");
        line
    }

    /// Our figure by this one, where both are known.
    fn ratio(&self, scenario: &Scenario, sample: &Sample) -> Option<f64> {
        let ours = self.rows.iter().find_map(|(of, row)| match &row.outcome {
            Outcome::Measured(ours) if row.peer.is_ours && of.name == scenario.name => Some(ours.figure),
            _ => None,
        })?;
        (sample.figure > 0.0).then(|| ours / sample.figure)
    }
}
