//! TOML text as a tree in which every value knows where it was written.

use std::collections::BTreeMap;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::fault::{Fault, Faults, MASK, Place, shown};

/// The keys of one table.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where the key stands; the value may stand lines below it.
    pub(crate) place: Place,
    pub(crate) item: Item,
}

/// A value.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) place: Place,
    /// The variable's text where the environment gave the value: a key that wants a string takes it
    /// as it is, though it looks like a number.
    pub(crate) raw: Option<String>,
}

/// What TOML can say. Of floats and dates no key makes use: they are kept to be shown.
#[derive(Debug)]
pub(crate) enum Value {
    Text(String),
    /// `None` does not fit.
    Integer(Option<i128>, String),
    Boolean(bool),
    Other(&'static str, String),
    List(Vec<Item>),
    Table(Entries),
}

impl Item {
    /// What kind of value this is, as a sentence about it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "is a string",
            Value::Integer(..) => "is an integer",
            Value::Boolean(_) => "is a boolean",
            Value::Other(kind, _) => kind,
            Value::List(_) => "is a list",
            Value::Table(_) => "is a table",
        }
    }

    /// The value as faults show it; lists and tables may hold anything and are not shown.
    pub(crate) fn shown(&self, secret: bool) -> Option<String> {
        if secret {
            return Some(MASK.to_owned());
        }
        match &self.value {
            Value::Text(text) => Some(shown(text)),
            Value::Boolean(value) => Some(value.to_string()),
            Value::Integer(_, text) | Value::Other(_, text) => Some(shown(text).trim_matches('"').to_owned()),
            Value::List(_) | Value::Table(_) => None,
        }
    }
}

/// Reads a file. Where it is not TOML, those faults are all there is to say: what the rest of the file
/// means is then a guess.
pub(crate) fn parse(file: &[u8]) -> Result<Entries, Faults> {
    let fault = |at: usize, wrong: String, remedy: &str| Fault {
        key: String::new(),
        value: None,
        place: Place::Line(line_of(file, at)),
        wrong,
        remedy: remedy.to_owned(),
    };
    let text = match std::str::from_utf8(file) {
        Ok(text) => text,
        Err(error) => {
            let wrong = "the file is not UTF-8 text".to_owned();
            let one = fault(error.valid_up_to(), wrong, "save it as UTF-8");
            return Err(Faults(vec![one]));
        }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let place = |at: usize| Place::Line(line_of(file, at));
        return Ok(entries(table.into_inner(), &place));
    }
    let mut faults: Vec<Fault> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or_default();
            match (error.message(), text.get(span.clone())) {
                ("duplicate key", Some(key)) => {
                    let wrong = format!("{} is written twice", shown(key));
                    fault(span.start, wrong, "keep one of the two")
                }
                // The line itself is not repeated: it may hold a secret.
                (message, _) => fault(
                    span.start,
                    format!("not TOML: {message}"),
                    "see https://toml.io, and mind quotes and brackets",
                ),
            }
        })
        .collect();
    // One slip makes the parser stumble several times over the same line.
    faults.sort_by(|one, other| one.place.cmp(&other.place));
    faults.dedup_by(|later, first| later.place == first.place);
    Err(Faults(faults))
}

/// The value of an environment variable: TOML where it is TOML, else the text itself.
pub(crate) fn variable(name: &str, text: &str) -> Item {
    let place = |_| Place::Variable(name.to_owned());
    let mut item = match DeValue::parse(text) {
        Ok(value) => item(value, &place),
        Err(_) => Item { value: Value::Text(text.to_owned()), place: place(0), raw: None },
    };
    item.raw = Some(text.to_owned());
    item
}

fn entries(table: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Entries {
    table
        .into_iter()
        .map(|(key, value)| {
            let entry = Entry { place: place(key.span().start), item: item(value, place) };
            (key.into_inner().into_owned(), entry)
        })
        .collect()
}

fn item(value: Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Place) -> Item {
    let at = place(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => {
            Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).ok(), number.to_string())
        }
        DeValue::Float(number) => Value::Other("is a float", number.to_string()),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(date) => Value::Other("is a date or time", date.to_string()),
        DeValue::Array(list) => Value::List(list.into_iter().map(|value| item(value, place)).collect()),
        DeValue::Table(table) => Value::Table(entries(table, place)),
    };
    Item { value, place: at, raw: None }
}

/// The line of a byte; the first is 1.
fn line_of(file: &[u8], at: usize) -> usize {
    let before = &file[..at.min(file.len())];
    before.split(|byte| *byte == b'\n').count()
}
