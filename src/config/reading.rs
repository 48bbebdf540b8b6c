//! What reading brings to light: faults, unknown keys, and every effective value in its place.

use std::{cell::RefCell, fmt::Write as _};

use super::{
    env::{Environment, variable_of},
    fault::{Fault, Faults, Place, Wrong, shown},
    keys::Keys,
    table::Table,
    tree::Entries,
};
use crate::types::Secret;

/// The report that grows while tables are read.
pub(crate) struct Reading<'e> {
    pub(crate) env: &'e Environment,
    faults: RefCell<Vec<Fault>>,
    sections: RefCell<Vec<Section>>,
    unknown: RefCell<Vec<Unknown>>,
}

/// One table of the effective configuration.
struct Section {
    path: String,
    live: bool,
    keys: Vec<Effective>,
}

/// One key of it.
pub(crate) struct Effective {
    pub(crate) key: String,
    /// The value as TOML, masked.
    pub(crate) toml: String,
    /// The value itself, to be compared with another's.
    pub(crate) value: Secret,
    pub(crate) place: Place,
    /// Whether anything uses the value.
    pub(crate) live: bool,
}

/// A key that nobody took.
pub(crate) struct Unknown {
    pub(crate) table: String,
    pub(crate) key: String,
    pub(crate) is_table: bool,
    pub(crate) place: Place,
}

impl<'e> Reading<'e> {
    pub(crate) fn new(env: &'e Environment, faults: Vec<Fault>) -> Self {
        Self { env, faults: RefCell::new(faults), sections: RefCell::default(), unknown: RefCell::default() }
    }

    /// The table that holds all others.
    pub(crate) fn root(&self, entries: Entries) -> Table<'_> {
        Table::new(self, String::new(), entries, true)
    }

    /// Reports a key whose value is well-formed and yet wrong together with others.
    pub(crate) fn fault(&self, key: &str, wrong: &str, remedy: &str) {
        let found = self.effective(key);
        let fault = Fault {
            key: key.to_owned(),
            place: found.as_ref().map_or(Place::Unset, |found| found.1.clone()),
            value: found.map(|found| found.0),
            wrong: wrong.to_owned(),
            remedy: remedy.to_owned(),
        };
        self.faults.borrow_mut().push(fault);
    }

    /// Whether these keys were read without fault: otherwise they carry a default that nobody chose.
    pub(crate) fn sound(&self, keys: &[&str]) -> bool {
        let faults = self.faults.borrow();
        let of = |fault: &Fault, key: &str| {
            let rest = fault.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        };
        !faults.iter().any(|fault| keys.iter().any(|key| of(fault, key)))
    }

    /// Ends the reading: the effective configuration as TOML and as single keys, or all faults in the order of
    /// the file.
    pub(crate) fn finish(self) -> Result<(String, Keys), Faults> {
        let sections = self.sections.into_inner();
        let mut faults = self.faults.into_inner();
        let unknown = self.unknown.into_inner();
        faults.extend(unknown.into_iter().map(|key| key.fault(&sections)));
        if faults.is_empty() {
            let effective = to_toml(&sections);
            return Ok((effective, keys(sections)));
        }
        faults.sort_by(|one, other| one.place.cmp(&other.place));
        Err(Faults(faults))
    }

    fn effective(&self, path: &str) -> Option<(String, Place)> {
        let (table, key) = path.rsplit_once('.')?;
        let sections = self.sections.borrow();
        let section = sections.iter().find(|section| section.path == table)?;
        let found = section.keys.iter().find(|found| found.key == key)?;
        Some((found.toml.clone(), found.place.clone()))
    }

    /// Adds a fault.
    pub(crate) fn push(&self, key: String, value: Option<String>, place: &Place, wrong: Wrong) {
        let Wrong { wrong, remedy } = wrong;
        let place = place.clone();
        let fault = Fault { key, value, place, wrong, remedy };
        self.faults.borrow_mut().push(fault);
    }

    /// Opens a table of the effective configuration.
    pub(crate) fn open(&self, parent: &str, path: &str, live: bool) {
        let mut sections = self.sections.borrow_mut();
        // After the tables of the same parent, whatever the order of reading.
        let inside = format!("{parent}.");
        let last = sections.iter().rposition(|section| section.path == parent || section.path.starts_with(&inside));
        let section = Section { path: path.to_owned(), live, keys: Vec::new() };
        let at = last.map_or(sections.len(), |last| last + 1);
        sections.insert(at, section);
    }

    /// Adds a key to an open table.
    pub(crate) fn record(&self, table: &str, key: Effective) {
        let mut sections = self.sections.borrow_mut();
        if let Some(section) = sections.iter_mut().find(|section| section.path == table) {
            section.keys.push(key);
        }
    }

    /// Adds keys that nobody took.
    pub(crate) fn leave(&self, keys: impl Iterator<Item = Unknown>) {
        self.unknown.borrow_mut().extend(keys);
    }
}

impl Unknown {
    fn fault(self, sections: &[Section]) -> Fault {
        let Self { table, key, is_table, place } = self;
        let noun = if is_table { "table" } else { "key" };
        let spell = |path: &str| match place {
            Place::Variable(_) => variable_of(path),
            _ => path.to_owned(),
        };
        let known = known(sections);
        let here: Vec<_> = known.iter().filter(|(parent, _)| *parent == table).collect();
        let like = |name: &str| strsim::normalized_damerau_levenshtein(name, &key);
        let near = here
            .iter()
            .map(|(_, name)| (like(name), *name))
            .max_by(|one, other| one.0.total_cmp(&other.0))
            // Below, two names have little more in common than a letter or two.
            .filter(|(likeness, _)| *likeness > 0.6);
        // A known name in the wrong table says more than a similar one in this.
        let elsewhere = known.iter().find(|(_, name)| *name == key);
        let remedy = if let Some((parent, name)) = elsewhere {
            format!("did you mean {}?", spell(&join(parent, name)))
        } else if let Some((_, name)) = near {
            format!("did you mean {}?", spell(&join(&table, name)))
        } else {
            let names: Vec<_> = here.iter().map(|(_, name)| *name).collect();
            format!("known here: {}", names.join(", "))
        };
        Fault { key: join(&table, &key), value: None, place, wrong: format!("unknown {noun}"), remedy }
    }
}

/// Every table and key that reading asked for, each with its parent's path.
fn known(sections: &[Section]) -> Vec<(&str, &str)> {
    let mut known = Vec::new();
    for section in sections {
        known.push(section.path.rsplit_once('.').unwrap_or(("", &section.path)));
        let keys = section.keys.iter().map(|found| found.key.as_str());
        known.extend(keys.map(|key| (section.path.as_str(), key)));
    }
    known
}

/// The sections as TOML; what nothing uses is left out.
fn to_toml(sections: &[Section]) -> String {
    let mut toml = String::new();
    for section in sections {
        let mut keys = section.keys.iter().filter(|key| key.live).peekable();
        if !section.live && keys.peek().is_none() {
            continue;
        }
        let gap = if toml.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        let _ = writeln!(toml, "{gap}[{}]", section.path);
        for key in keys {
            let _ = writeln!(toml, "{} = {}", key.key, key.toml);
        }
    }
    toml
}

fn keys(sections: Vec<Section>) -> Keys {
    let of = |section: Section| {
        let live = section.keys.into_iter().filter(|key| key.live);
        live.map(move |key| (join(&section.path, &key.key), key.value)).collect::<Vec<_>>()
    };
    Keys(sections.into_iter().flat_map(of).collect())
}

/// The path of a key; what is no plain name is quoted, so that it cannot be mistaken.
pub(crate) fn join(table: &str, key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let key = if key.bytes().all(plain) && !key.is_empty() { key.to_owned() } else { shown(key) };
    match table {
        "" => key,
        table => format!("{table}.{key}"),
    }
}
