//! Two configurations, compared key by key.

use std::collections::BTreeMap;

use crate::types::Secret;

/// Every key that is in use, with its value; nothing of it shows.
#[derive(Clone, Debug)]
pub struct Keys(pub(super) BTreeMap<String, Secret>);

impl Keys {
    /// The keys' paths, e.g. `server.listen`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The keys with another value there than here, in order. A key that only one of the two uses counts where
    /// the operator names the keys (`catalog.static`); any other comes and goes with a `kind`, which counts.
    pub fn changed(&self, other: &Self) -> Vec<String> {
        let named = |path: &str| path.starts_with(NAMED) && self.same("catalog.kind", other);
        let all = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        let mut changed: Vec<_> = all
            .filter(|path| match (self.0.get(*path), other.0.get(*path)) {
                (Some(_), Some(_)) => !self.same(path, other),
                _ => named(path),
            })
            .cloned()
            .collect();
        changed.sort_unstable();
        changed
    }

    fn same(&self, path: &str, other: &Self) -> bool {
        match (self.0.get(path), other.0.get(path)) {
            (Some(one), Some(other)) => one.matches(other.expose()),
            _ => false,
        }
    }
}

/// The table whose keys are the operator's own.
const NAMED: &str = "catalog.static.";

#[cfg(test)]
mod tests {
    use crate::config::{Config, Environment, Keys};

    fn keys(file: &str) -> Keys {
        let loaded = Config::load(file.as_bytes(), &Environment::default());
        loaded.unwrap_or_else(|faults| panic!("{faults}")).keys
    }

    #[test]
    fn what_changed_is_named_also_where_it_is_a_secret() {
        let rest = |url: &str, key: &str| {
            format!("catalog.kind = 'rest'\ncatalog.rest = {{ url = 'http://{url}', api_key = '{key}' }}")
        };
        let fixed = |entry: &str| format!("catalog = {{ kind = 'static', static = {{ {entry} }} }}");
        for (before, after, want) in [
            (String::new(), "server.workers = 0".into(), &[][..]),
            (
                String::new(),
                "server = { workers = 3, listen = ['[::1]:1'] }".into(),
                &["server.listen", "server.workers"],
            ),
            ("admin.token = 'a'".into(), "admin.token = 'b'".into(), &["admin.token"]),
            (String::new(), "admin.token = 'b'".into(), &["admin.token"]),
            (rest("u:a@h", "k"), rest("u:b@h", "k"), &["catalog.rest.url"]),
            (rest("h", "k"), rest("h", "l"), &["catalog.rest.api_key"]),
            (fixed("a = 'n'"), fixed("b = 'n'"), &["catalog.static.a", "catalog.static.b"]),
            (fixed("a = 'n'"), fixed("a = 'm'"), &["catalog.static.a"]),
            (fixed("a = 'n'"), rest("h", "k"), &["catalog.kind"]),
        ] {
            assert_eq!(keys(&before).changed(&keys(&after)), want, "{before} {after}");
            assert_eq!(keys(&after).changed(&keys(&before)), want, "{after} {before}");
        }
    }
}
