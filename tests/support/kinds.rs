//! Control planes for the configurations of tests that choose none: those that need no server.

/// Keys and their values.
const NONE_NEEDED: [(&str, &str); 2] = [("catalog", "static"), ("resume", "none")];

/// Tables whose kind this configuration leaves open, and the kind for each.
fn left_open(toml: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let file = toml.parse::<toml::Table>().unwrap_or_default();
    let open = move |table: &str| file.get(table).is_none_or(|table| table.get("kind").is_none());
    NONE_NEEDED.into_iter().filter(move |(table, _)| open(table))
}

/// The same as lines that go before it.
pub fn lines(toml: &str) -> String {
    left_open(toml).map(|(table, kind)| format!("{table}.kind = \"{kind}\"\n")).collect::<Vec<_>>().concat()
}
