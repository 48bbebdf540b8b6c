//! The environment: `${VAR}` in strings of the file, and `CLIENT_PROXY__SECTION__KEY` over its keys.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    fault::{Fault, Place, Wrong},
    tree::{self, Entries, Entry, Item, Value},
};

/// What the names of overriding variables begin with.
const PREFIX: &str = "CLIENT_PROXY__";

/// Environment variables, e.g. collected from [`std::env::vars_os`].
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, Option<String>>);

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let text = |value: V| value.into().into_string().ok();
        Self(
            variables
                .into_iter()
                // A name that is not text cannot be written in a file, and is none of ours.
                .filter_map(|(name, value)| Some((name.into().into_string().ok()?, text(value))))
                .collect(),
        )
    }
}

impl Environment {
    /// Puts the values of overriding variables into the tree.
    pub(crate) fn overlay(&self, root: &mut Entries, faults: &mut Vec<Fault>) {
        // In the order of names, so that a table comes before the keys in it.
        for (name, text) in &self.0 {
            let Some(path) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let done = if path != path.to_ascii_uppercase() {
                let remedy = format!("write {}", name.to_ascii_uppercase());
                Err(Wrong::new("the name is not upper-case", remedy))
            } else if let Some(text) = text {
                let keys: Vec<_> = path.split("__").map(str::to_ascii_lowercase).collect();
                put(root, &keys, tree::variable(name, text))
            } else {
                let wrong = "the value is not UTF-8 text";
                Err(Wrong::new(wrong, "write text"))
            };
            if let Err(Wrong { wrong, remedy }) = done {
                faults.push(Fault {
                    key: path.to_ascii_lowercase().replace("__", "."),
                    value: None,
                    place: Place::Variable(name.clone()),
                    wrong,
                    remedy,
                });
            }
        }
    }

    /// The first of these variables that is not empty, and its value; `None` where that is not text.
    pub(crate) fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, Option<&str>)> {
        let found = |name: &'n str| Some((name, self.0.get(name)?.as_deref()));
        names.iter().copied().filter_map(found).find(|(_, value)| *value != Some(""))
    }

    /// Whether the variable has this word as its value, in upper or lower case.
    pub(crate) fn says(&self, name: &str, word: &str) -> bool {
        matches!(self.0.get(name), Some(Some(value)) if value.trim().eq_ignore_ascii_case(word))
    }

    /// Replaces `${VAR}`; `$${` stands for `${` itself.
    pub(crate) fn expand(&self, text: &str) -> Result<String, Wrong> {
        let mut whole = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                whole.extend([before, "${"]);
                rest = after;
                continue;
            }
            let name = after.split_once('}').map(|(name, _)| name);
            let Some(name) = name.filter(|name| is_name(name)) else {
                return Err(Wrong::new(
                    "`${` is not followed by a variable's name and `}`",
                    "write ${NAME}, or $${ for the characters themselves",
                ));
            };
            let value = match self.0.get(name) {
                Some(Some(value)) => value,
                Some(None) => {
                    let wrong = format!("the environment variable {name} is not UTF-8 text");
                    return Err(Wrong::new(wrong, "give it text"));
                }
                None => {
                    let wrong = format!("the environment variable {name} is not set");
                    let remedy = format!("set {name}, or write the value itself");
                    return Err(Wrong::new(wrong, remedy));
                }
            };
            whole.extend([before, value.as_str()]);
            rest = &after[name.len() + 1..];
        }
        whole.push_str(rest);
        Ok(whole)
    }
}

/// The variable that overrides a key.
pub(crate) fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', "__"))
}

fn is_name(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(part)
}

fn put(table: &mut Entries, path: &[String], item: Item) -> Result<(), Wrong> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(());
    };
    let place = item.place.clone();
    if rest.is_empty() {
        table.insert(first.clone(), Entry { place, item });
        return Ok(());
    }
    let entry = table.entry(first.clone()).or_insert_with(|| Entry {
        place: place.clone(),
        item: Item { value: Value::Table(Entries::new()), place, raw: None },
    });
    let (kind, at) = (entry.item.kind(), entry.item.place.clone());
    match &mut entry.item.value {
        Value::Table(inner) => put(inner, rest, item),
        _ => Err(Wrong::new(
            format!("{first:?} {kind} ({at}) and has no keys"),
            "make it a table, or unset the variable",
        )),
    }
}
