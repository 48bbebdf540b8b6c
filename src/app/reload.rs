//! SIGHUP: the same file and environment are read again. Here stands which keys are live and to whom a new
//! value is handed ([`Settings::hand_over`]); whoever adds a key names it in one of the two lists.

use std::{
    fmt::Write as _,
    mem::Discriminant,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use tokio::{signal::unix::Signal, task::spawn_blocking};

use super::{
    descriptors,
    server::{Finder, limits, patience, quota, terms},
};
use crate::{
    config::{Catalog, Config, Keys, Loaded, Shutdown},
    control::AnyCatalog,
    edge::{admin, room::Room, tls::Certificates, watch::Patience},
    request::Site,
    sandbox::Limits,
    telemetry::Verbosity,
    types::Secret,
};

/// Keys whose new values are used at once, by requests and connections that begin from then on. A name that ends
/// in a dot is a whole table.
const LIVE: &[&str] = &[
    "server.max_connections",
    "server.header_read_timeout",
    "server.idle_timeout",
    CERTIFICATES,
    ADMIN_TOKEN,
    "catalog.redis.timeout",
    "catalog.rest.timeout",
    "catalog.static.",
    "cache.ttl",
    "cache.ttl_with_push",
    "cache.stale_if_error",
    "cache.negative_ttl",
    "cache.max_entries",
    "resume.hold_timeout",
    "resume.call_timeout",
    "resume.max_held",
    "resume.max_held_per_sandbox",
    "resume.max_held_per_client",
    "resume.max_concurrent",
    "resume.release_rate",
    "wake.health_probe",
    "wake.ignore_paths",
    "wake.ignore_user_agents",
    "wake.max_per_client_per_minute",
    "wake.answer_preflight",
    "wake.page_after",
    "upstream.response_header_timeout",
    "upstream.max_connections_per_sandbox",
    "shutdown.drain_delay",
    "shutdown.drain_timeout",
    "log.filter",
    "log.access",
];

/// Keys that are read at the start only: their change is warned of.
const RESTART: &[&str] = &[
    "server.listen",
    "server.workers",
    "server.domains",
    "server.header_hosts",
    "server.default_port",
    "server.proxy_protocol",
    "server.trusted_proxies",
    "server.tls.listen",
    "health.listen",
    "admin.listen",
    "catalog.kind",
    "catalog.redis.urls",
    "catalog.redis.cluster",
    "catalog.redis.ca_base64",
    "catalog.redis.push",
    "catalog.rest.url",
    "catalog.rest.api_key",
    "catalog.rest.node_pointer",
    "resume.kind",
    "resume.grpc.",
    "resume.rest.",
    "upstream.mode",
    "upstream.address",
    "upstream.protocol",
    "upstream.connect_timeout",
    "upstream.connect_attempts",
    "upstream.idle_timeout",
    "upstream.allow_loopback",
    "upstream.rewrite_shared_host",
    "log.format",
    "otlp.",
];

/// Live, but for its end where others reach the listener.
const ADMIN_TOKEN: &str = "admin.token";
/// Live, but for their end: the listener that shows them is there until a restart.
const CERTIFICATES: &str = "server.tls.certificates";

fn stands_in(list: &[&str], key: &str) -> bool {
    list.iter().any(|name| *name == key || (name.ends_with('.') && key.starts_with(name)))
}

/// Reads the configuration again. The error is all that is wrong with it, secrets masked.
pub type Source = Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>;

/// What the process was told, and who was told of it.
pub(super) struct Settings {
    /// What keys that need a restart are compared with.
    started: Keys,
    catalog: Discriminant<Catalog>,
    admin_is_public: bool,
    current: Mutex<Current>,
    receivers: Receivers,
}

/// To whom changes are handed.
pub(super) struct Receivers {
    pub(super) site: Arc<Site>,
    pub(super) finder: Arc<Finder>,
    pub(super) patience: Arc<ArcSwap<Patience>>,
    pub(super) room: Arc<Room>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) verbosity: Arc<Verbosity>,
}

struct Current {
    keys: Keys,
    effective: String,
    since: SystemTime,
    /// Keys whose values in `effective` wait for a restart.
    waiting: Vec<String>,
    admin_token: Option<Secret>,
    lookup_timeout: Duration,
    shutdown: Shutdown,
}

impl Settings {
    pub(super) fn new(loaded: Loaded, receivers: Receivers) -> Arc<Self> {
        let Loaded { config, effective, keys, .. } = loaded;
        let current = Current {
            keys: keys.clone(),
            effective,
            since: SystemTime::now(),
            waiting: Vec::new(),
            lookup_timeout: limits(&config).lookup_timeout,
            admin_token: config.admin.token,
            shutdown: config.shutdown,
        };
        Arc::new(Self {
            started: keys,
            catalog: std::mem::discriminant(&config.catalog),
            admin_is_public: config.admin.listen.is_some_and(|address| !address.ip().is_loopback()),
            current: Mutex::new(current),
            receivers,
        })
    }

    /// How long a drain may take now.
    pub(super) fn shutdown(&self) -> Shutdown {
        self.current().shutdown.clone()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Off the data path; whoever panicked left values that are each whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a configuration without fault.
    fn take(&self, loaded: Loaded) {
        let mut current = self.current();
        let keeps_token = self.keeps_token(&loaded.config);
        let keeps_certificates = loaded.config.server.tls.certificates.is_empty();
        let stays = |key: &str| (keeps_token && key == ADMIN_TOKEN) || (keeps_certificates && key == CERTIFICATES);
        let mut changed = current.keys.changed(&loaded.keys);
        changed.retain(|key| stands_in(LIVE, key) && !stays(key));
        let mut waiting = self.started.changed(&loaded.keys);
        waiting.retain(|key| stands_in(RESTART, key) || stays(key));
        self.hand_over(&loaded.config, &changed, &mut current);
        tracing::info!(changed = listed(&changed), "configuration reloaded");
        for key in &waiting {
            tracing::warn!(key, "{key} is another than at the start: that takes a restart");
        }
        for warning in loaded.warnings {
            tracing::warn!("{warning}");
        }
        current.keys = loaded.keys;
        current.effective = loaded.effective;
        current.since = SystemTime::now();
        current.waiting = waiting;
    }

    /// Whether this configuration would open the admin listener to others, which stays where it is, wherever the
    /// file would have it.
    fn keeps_token(&self, config: &Config) -> bool {
        config.admin.token.is_none() && self.admin_is_public
    }

    fn hand_over(&self, config: &Config, changed: &[String], current: &mut Current) {
        let Receivers { site, finder, patience: patient, room, certificates, verbosity } = &self.receivers;
        site.terms.store(Arc::new(terms(config)));
        site.wake.store(Arc::new((&config.wake).into()));
        site.quota.set_max(quota(config, site.mode));
        patient.store(Arc::new(patience(config)));
        room.resize(config.server.max_connections);
        if !config.server.tls.certificates.is_empty() {
            certificates.replace(config.server.tls.certificates.clone());
        }
        let limits = limits(config);
        // Another kind of catalog is another's timeout.
        if std::mem::discriminant(&config.catalog) == self.catalog {
            current.lookup_timeout = limits.lookup_timeout;
        }
        finder.adjust(Limits { lookup_timeout: current.lookup_timeout, ..limits });
        if let (AnyCatalog::Static(catalog), Catalog::Static(nodes)) = (finder.catalog(), &config.catalog) {
            for id in catalog.replace(nodes.clone()) {
                finder.forget(&id);
            }
        }
        if let Err(error) = verbosity.configure(&config.log.filter) {
            tracing::error!(%error, "log.filter");
        }
        if self.keeps_token(config) {
            tracing::warn!("admin.token stays: others can reach the admin listener until a restart");
        } else {
            current.admin_token.clone_from(&config.admin.token);
        }
        if ["server.max_connections", "resume.max_held"].iter().any(|key| changed.iter().any(|is| is == key)) {
            descriptors::raise(config);
        }
        current.shutdown = config.shutdown.clone();
        if changed.iter().any(|key| key.starts_with("shutdown.")) {
            tracing::info!(grace_seconds = config.grace().as_secs(), "a platform must give this grace now");
        }
    }
}

impl admin::Settings for Settings {
    fn effective(&self) -> String {
        let current = self.current();
        let mut text = format!("# Loaded {}\n", humantime::format_rfc3339_seconds(current.since));
        if !current.waiting.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# Waiting for a restart: {}", current.waiting.join(", "));
        }
        text + "\n" + &current.effective
    }

    fn admin_token(&self) -> Option<Secret> {
        self.current().admin_token.clone()
    }

    fn verbosity(&self) -> &Arc<Verbosity> {
        &self.receivers.verbosity
    }
}

/// Keys for a line of the log; a catalog may have many entries.
fn listed(keys: &[String]) -> String {
    const MANY: usize = 30;
    let mut text = keys.iter().take(MANY).map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(more) = keys.len().checked_sub(MANY).filter(|more| *more > 0) {
        let _ = write!(text, " and {more} more");
    }
    text
}

/// Reloads at every SIGHUP. Those that come while one is served are one.
pub(super) async fn on_hangup(mut hangups: Signal, settings: Arc<Settings>, source: Source) {
    let source = Arc::new(source);
    while hangups.recv().await.is_some() {
        // A file may be somewhere slow.
        let read = source.clone();
        match spawn_blocking(move || read()).await {
            Ok(Ok(loaded)) => settings.take(loaded),
            Ok(Err(faults)) => tracing::error!("configuration not reloaded, nothing changed: {faults}"),
            Err(error) => tracing::error!(%error, "configuration not reloaded, nothing changed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::App, config::Environment};

    /// Every key is in use in one of these.
    fn all_keys() -> Vec<String> {
        let rest = "catalog = { kind = 'rest', rest.api_key = 'k' }\nresume = { kind = 'rest', rest.api_key = 'k' }";
        let keys = |text: &str| {
            let loaded = Config::load(text.as_bytes(), &Environment::default());
            loaded.unwrap_or_else(|faults| panic!("{faults}")).keys
        };
        let fixed = "catalog = { kind = 'static', static.abc = '10.0.0.1' }";
        let all = [keys(""), keys(fixed), keys(rest)];
        all.iter().flat_map(Keys::paths).map(str::to_owned).collect()
    }

    #[test]
    fn every_key_is_either_live_or_needs_a_restart() {
        let all = all_keys();
        for key in &all {
            let lists = [LIVE, RESTART].map(|list| stands_in(list, key));
            assert!(lists[0] != lists[1], "{key} must stand in one of LIVE and RESTART");
        }
        for name in LIVE.iter().chain(RESTART) {
            assert!(all.iter().any(|key| stands_in(&[name], key)), "{name} is no key");
        }
    }

    #[test]
    fn an_admin_listener_that_others_reach_keeps_its_token() {
        for (address, token, want) in [
            ("0.0.0.0:0", "", Some("old")),
            ("0.0.0.0:0", "new", Some("new")),
            ("127.0.0.1:0", "", None),
            ("127.0.0.1:0", "new", Some("new")),
        ] {
            let load = |admin: &str, token: &str| {
                let text = format!(
                    "catalog.kind = 'static'\nserver.listen = ['127.0.0.1:0']\nhealth.listen = '127.0.0.1:0'\n\
                     admin = {{ listen = '{admin}', token = '{token}' }}"
                );
                let loaded = Config::load(text.as_bytes(), &Environment::default());
                loaded.unwrap_or_else(|faults| panic!("{faults}"))
            };
            let app = App::start(load(address, "old"), None).expect("a proxy");
            // Wherever the file would have it, the listener stays where it is.
            app.settings.take(load("127.0.0.1:0", token));
            let needed = admin::Settings::admin_token(&*app.settings);
            assert_eq!(needed.as_ref().map(Secret::expose), want.map(str::as_bytes), "{address} {token}");
            // What was not done is not told as done.
            let current = app.settings.current();
            let refused = token.is_empty() && want.is_some();
            assert_eq!(current.waiting.iter().any(|key| key == ADMIN_TOKEN), refused, "{address} {token}");
        }
    }

    #[test]
    fn the_readme_names_the_live_keys() {
        let readme = include_str!("../../README.md");
        let section = readme.lines().skip_while(|line| !line.contains("**SIGHUP**"));
        let told: String = section.take_while(|line| !line.starts_with("- **SIGTERM**")).collect();
        let named: Vec<_> = told.split('`').skip(1).step_by(2).filter(|word| word.contains('.')).collect();
        let live: Vec<_> = LIVE.iter().map(|name| name.trim_end_matches('.')).collect();
        assert_eq!(named, live);
    }
}
