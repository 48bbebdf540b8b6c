//! Takes keys out of a table one by one. Each call names a key, its default and its kind; that call is
//! the only place that knows the key. What nobody took is unknown.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive};

use super::{
    fault::{MASK, Place, Wrong, shown},
    kinds,
    reading::{Effective, Reading, Unknown, join},
    tree::{Entries, Entry, Item, Value},
};
use crate::types::Secret;

mod records;

/// A table whose keys are being taken.
pub(crate) struct Table<'r> {
    reading: &'r Reading<'r>,
    path: String,
    entries: Entries,
    /// Whether anything will use the values. Keys of a table that nothing uses are still taken, so that
    /// unknown ones show; their values are not looked at.
    pub(crate) live: bool,
}

impl<'r> Table<'r> {
    pub(crate) fn new(reading: &'r Reading<'r>, path: String, entries: Entries, live: bool) -> Self {
        Self { reading, path, entries, live }
    }

    /// The table under `key`; `live` says whether anything will use its values.
    pub(crate) fn table(&mut self, key: &'static str, live: bool) -> Table<'r> {
        let path = self.path_of(key);
        self.reading.open(&self.path, &path, live);
        let entries = match self.entries.remove(key).map(|entry| entry.item) {
            None => Entries::new(),
            Some(Item { value: Value::Table(entries), .. }) => entries,
            Some(item) => {
                let wrong = Wrong::new(item.kind(), format!("write it as a table: [{path}]"));
                self.reading.push(path.clone(), None, &item.place, wrong);
                Entries::new()
            }
        };
        Table::new(self.reading, path, entries, live)
    }

    /// A string that `parse` understands.
    pub(crate) fn text<T>(&mut self, key: &'static str, default: &str, parse: impl Fn(&str) -> Result<T, Wrong>) -> T {
        let item = self.take(key);
        if let Some(item) = &item
            && let Some((value, text)) = self.parsed(&self.path_of(key), item, default, &parse)
        {
            self.record(key, kinds::toml(&text), &text, &item.place);
            return value;
        }
        self.record(key, kinds::toml(default), default, &Place::Unset);
        match parse(default) {
            Ok(value) => value,
            Err(wrong) => unreachable!("the default of {key}: {}", wrong.wrong),
        }
    }

    /// A string that `parse` understands, empty by default. Where it is empty, the first of these variables of
    /// the environment that is not empty counts: names that other programs know, too.
    pub(crate) fn text_or_variable<T>(
        &mut self,
        key: &'static str,
        variables: &[&str],
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> T {
        let empty = |entry: &Entry| matches!(&entry.item.value, Value::Text(text) if text.is_empty());
        if self.entries.get(key).is_none_or(empty)
            && let Some((name, text)) = self.reading.env.first(variables)
        {
            if let Some(text) = text {
                self.put(key, text, name);
            } else {
                let wrong = Wrong::new("the value is not UTF-8 text", "write text");
                self.reading.push(self.path_of(key), None, &Place::Variable(name.to_owned()), wrong);
            }
        }
        self.text(key, "", parse)
    }

    /// Whatever was written, the key's value is this where one of these variables has the word beside it, in
    /// upper or lower case.
    pub(crate) fn overrule(&mut self, key: &'static str, text: &str, by: &[(&str, &str)]) {
        if let Some((name, _)) = by.iter().find(|(name, word)| self.reading.env.says(name, word)) {
            self.put(key, text, name);
        }
    }

    fn put(&mut self, key: &'static str, text: &str, variable: &str) {
        let place = Place::Variable(variable.to_owned());
        let item = Item { value: Value::Text(text.to_owned()), place: place.clone(), raw: None };
        self.entries.insert(key.to_owned(), Entry { place, item });
    }

    /// One of some words; the first is the default.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> T {
        self.text(key, words[0].0, |text| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let known: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
                Wrong::new("no such choice", format!("write {}", known.join(" or ")))
            })
        })
    }

    /// Strings that `parse` understands.
    pub(crate) fn list<T>(
        &mut self,
        key: &'static str,
        default: &[&str],
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Vec<T> {
        let path = self.path_of(key);
        let (mut values, mut texts) = (Vec::new(), Vec::<String>::new());
        let item = self.take(key);
        let place = item.as_ref().map_or(Place::Unset, |item| item.place.clone());
        match item {
            None => {
                texts.extend(default.iter().copied().map(str::to_owned));
                values.extend(default.iter().filter_map(|text| parse(text).ok()));
            }
            Some(Item { value: Value::List(items), .. }) => {
                let example = default.first().copied().unwrap_or_default();
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    if let Some((value, text)) = self.parsed(&path, item, example, &parse) {
                        texts.push(text);
                        values.push(value);
                    }
                }
            }
            Some(item) => {
                let value = item.shown(false);
                let remedy = match (&item.value, &value) {
                    (Value::Text(_), Some(text)) => format!("put it in brackets: [{text}]"),
                    _ => "write a list of strings in brackets".to_owned(),
                };
                self.reading.push(path, value, &place, Wrong::new(item.kind(), remedy));
            }
        }
        let shown: Vec<_> = texts.iter().map(|text| kinds::toml(text)).collect();
        self.record(key, format!("[{}]", shown.join(", ")), format!("{texts:?}"), &place);
        values
    }

    /// A whole number in a range.
    pub(crate) fn integer<T>(&mut self, key: &'static str, default: T, range: RangeInclusive<T>) -> T
    where
        T: Copy + Display + PartialOrd + TryFrom<i128>,
    {
        let (low, high) = (range.start(), range.end());
        let right = format!("write an integer from {low} to {high}, such as {default}");
        self.plain(key, default, right, |value| match value {
            Value::Integer(number, _) => Some(
                number
                    .and_then(|number| T::try_from(number).ok())
                    .filter(|number| range.contains(number))
                    .ok_or("is out of range"),
            ),
            _ => None,
        })
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        let right = "write true or false, without quotes".to_owned();
        self.plain(key, default, right, |value| match value {
            Value::Boolean(value) => Some(Ok(*value)),
            _ => None,
        })
    }

    /// A secret; empty is none, which is a fault where it is required.
    pub(crate) fn secret(&mut self, key: &'static str, default: &str, required: bool) -> Option<Secret> {
        let item = self.take(key);
        let place = item.as_ref().map_or(Place::Unset, |item| item.place.clone());
        let mut secret = None;
        if self.live {
            let text = match &item {
                Some(item) => self.string(item, ""),
                None => self.reading.env.expand(default),
            };
            match text.and_then(|text| kinds::secret(&text, required)) {
                Ok(found) => secret = found,
                Err(wrong) => {
                    let value = item.is_some().then(|| MASK.to_owned());
                    self.reading.push(self.path_of(key), value, &place, wrong);
                }
            }
        }
        let shown = if secret.is_some() { MASK } else { "" };
        let value = secret.as_ref().map(Secret::expose).unwrap_or_default();
        self.record(key, kinds::toml(shown), value, &place);
        secret
    }

    /// A table whose keys the operator names.
    pub(crate) fn pairs<K: Ord, V>(
        &mut self,
        key: &'static str,
        live: bool,
        parse: impl Fn(&str, &str) -> Result<(K, V), Wrong>,
    ) -> BTreeMap<K, V> {
        let mut table = self.table(key, live);
        let mut pairs = BTreeMap::new();
        for (name, entry) in std::mem::take(&mut table.entries) {
            let path = table.path_of(&name);
            let parse = |text: &str| parse(&name, text);
            if live && let Some((pair, text)) = table.parsed(&path, &entry.item, "", &parse) {
                table.record(&name, kinds::toml(&text), &text, &entry.item.place);
                pairs.extend([pair]);
            }
        }
        pairs
    }

    /// Reports what is wrong with the table as a whole, if anything will use it.
    pub(crate) fn fault(&self, wrong: &str, remedy: &str) {
        if self.live {
            self.reading.push(self.path.clone(), None, &Place::Unset, Wrong::new(wrong, remedy));
        }
    }

    /// The item under `key`, if anything will use it.
    fn take(&mut self, key: &str) -> Option<Item> {
        let entry = self.entries.remove(key);
        entry.filter(|_| self.live).map(|entry| entry.item)
    }

    /// A value that needs no quotes.
    fn plain<T: Copy + Display>(
        &mut self,
        key: &'static str,
        default: T,
        right: String,
        accept: impl Fn(&Value) -> Option<Result<T, &'static str>>,
    ) -> T {
        let mut value = default;
        let item = self.take(key);
        let place = item.as_ref().map_or(Place::Unset, |item| item.place.clone());
        if let Some(item) = item {
            match accept(&item.value).unwrap_or(Err(item.kind())) {
                Ok(found) => value = found,
                Err(wrong) => {
                    let wrong = Wrong::new(wrong, right);
                    self.reading.push(self.path_of(key), item.shown(false), &place, wrong);
                }
            }
        }
        let text = value.to_string();
        self.record(key, text.clone(), text, &place);
        value
    }

    /// What `parse` makes of a string, and the string; or a fault.
    fn parsed<T>(
        &self,
        path: &str,
        item: &Item,
        example: &str,
        parse: &impl Fn(&str) -> Result<T, Wrong>,
    ) -> Option<(T, String)> {
        let text = self.string(item, example);
        let shown = match &text {
            Ok(text) => Some(shown(text)),
            Err(_) => item.shown(false),
        };
        match text.and_then(|text| Ok((parse(&text)?, text))) {
            Ok(done) => Some(done),
            Err(wrong) => {
                self.reading.push(path.to_owned(), shown, &item.place, wrong);
                None
            }
        }
    }

    /// The string that an item stands for. Variables are taken as they are: what looks like a
    /// placeholder in them may be part of a secret.
    fn string(&self, item: &Item, example: &str) -> Result<String, Wrong> {
        match (&item.value, &item.raw, &item.place) {
            (Value::Text(text), _, Place::Variable(_)) => Ok(text.clone()),
            (_, Some(raw), _) => Ok(raw.clone()),
            (Value::Text(text), ..) => self.reading.env.expand(text),
            _ if example.is_empty() => Err(Wrong::new(item.kind(), "write a string in quotes")),
            _ => {
                let remedy = format!("write a string in quotes, such as {example:?}");
                Err(Wrong::new(item.kind(), remedy))
            }
        }
    }

    /// `toml` is to be shown, `value` is what it hides.
    fn record(&self, key: &str, toml: String, value: impl AsRef<[u8]>, place: &Place) {
        let (key, value, place, live) = (key.to_owned(), Secret::new(value), place.clone(), self.live);
        self.reading.record(&self.path, Effective { key, toml, value, place, live });
    }

    fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

impl Drop for Table<'_> {
    /// What is left, nobody knows.
    fn drop(&mut self) {
        for (key, entry) in std::mem::take(&mut self.entries) {
            let mut places = vec![entry.place];
            variables(&entry.item, &mut places);
            let is_table = matches!(entry.item.value, Value::Table(_));
            self.reading.leave(places.into_iter().map(|place| Unknown {
                table: self.path.clone(),
                key: key.clone(),
                is_table,
                place,
            }));
        }
    }
}

/// Adds the variables that put something into this item: each of them is to be corrected.
fn variables(item: &Item, places: &mut Vec<Place>) {
    if matches!(item.place, Place::Variable(_)) && !places.contains(&item.place) {
        places.push(item.place.clone());
    }
    if let Value::Table(entries) = &item.value {
        for entry in entries.values() {
            variables(&entry.item, places);
        }
    }
}
