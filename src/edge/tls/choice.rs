//! Which certificate a client is shown: by the name that it asked for (SNI, RFC 6066 §3).

use std::{collections::HashMap, fmt, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::config::Certificate;

/// Exact names before wildcards; of two for the same name the first; and the first of all for whoever names nothing
/// that any is for.
pub(super) struct Choice {
    first: Option<Arc<CertifiedKey>>,
    names: HashMap<String, Arc<CertifiedKey>>,
    /// `example.com` of `*.example.com`, which is for exactly one label more (RFC 6125 §6.4.3).
    wildcards: HashMap<String, Arc<CertifiedKey>>,
}

impl Choice {
    pub(super) fn of(all: &[Arc<Certificate>]) -> Self {
        let (mut names, mut wildcards) = (HashMap::new(), HashMap::new());
        for certificate in all {
            for name in &certificate.names {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(base) => (&mut wildcards, base),
                    None => (&mut names, name.as_str()),
                };
                map.entry(name.to_owned()).or_insert_with(|| certificate.key.clone());
            }
        }
        Self { first: all.first().map(|first| first.key.clone()), names, wildcards }
    }

    fn by_name(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        // Names are case-insensitive; a dot at the end is no part of one.
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.names.get(&name).or_else(|| self.wildcards.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        hello.server_name().and_then(|name| self.by_name(name)).or(self.first.as_ref()).cloned()
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choice").finish_non_exhaustive()
    }
}
