//! The certificates in use, and how they become others while connections run: on SIGHUP, and when their files
//! change.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{
        CryptoProvider,
        ring::{Ticketer, default_provider},
    },
    server::{NoServerSessionStorage, ProducesTickets},
};
use tokio::{task::spawn_blocking, time::interval};

use super::{PROTOCOLS, choice::Choice};
use crate::{
    config::{Certificate, CertificateFiles},
    telemetry::Metrics,
};

/// How often files are looked at. Looking, unlike a watch of the file system, sees through the links that are
/// swapped where secrets are mounted.
const LOOK: Duration = Duration::from_secs(2);

pub(crate) struct Certificates {
    current: ArcSwap<Set>,
    /// Held by whoever changes what is current, until the metrics say so, too.
    changes: Mutex<()>,
    provider: Arc<CryptoProvider>,
    /// Outlives the certificates: clients resume after a renewal, too.
    ticketer: Arc<dyn ProducesTickets>,
    /// What is wrong with files that have changed, by the path of the chain.
    problems: Mutex<HashMap<PathBuf, String>>,
    metrics: Arc<Metrics>,
}

struct Set {
    all: Vec<Arc<Certificate>>,
    config: Arc<ServerConfig>,
}

/// A certificate as operators see it.
pub(crate) struct Shown {
    pub(crate) certificate: Arc<Certificate>,
    /// Why its files, having changed, are not in use.
    pub(crate) problem: Option<String>,
}

/// What became of one certificate's files.
enum Look {
    Same,
    Read(Arc<Certificate>),
    Bad(String),
}

impl Certificates {
    pub(crate) fn new(all: Vec<Arc<Certificate>>, metrics: Arc<Metrics>) -> Result<Arc<Self>, rustls::Error> {
        let (provider, ticketer) = (Arc::new(default_provider()), Ticketer::new()?);
        let set = Set::new(all, &provider, &ticketer)?;
        set.tell_expiry(&metrics);
        let current = ArcSwap::from_pointee(set);
        let (changes, problems) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { current, changes, provider, ticketer, problems, metrics }))
    }

    /// What the next handshake works with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    pub(crate) fn shown(&self) -> Vec<Shown> {
        let problems = self.problems();
        let all = self.current.load();
        let shown = |certificate: &Arc<Certificate>| Shown {
            certificate: certificate.clone(),
            problem: problems.get(&certificate.files.cert).cloned(),
        };
        all.all.iter().map(shown).collect()
    }

    /// From now on these, which were read just now.
    pub(crate) fn replace(&self, all: Vec<Arc<Certificate>>) {
        let _change = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.current.load_full();
        let is_known = |new: &Certificate| {
            let same = |old: &Arc<Certificate>| old.files == new.files && old.fingerprint == new.fingerprint;
            before.all.iter().any(same)
        };
        let fresh: Vec<_> = all.iter().filter(|new| !is_known(new)).cloned().collect();
        match Set::new(all, &self.provider, &self.ticketer) {
            Ok(set) => {
                self.problems().clear();
                for certificate in &fresh {
                    self.tell(certificate);
                }
                before.forget_expiry(&self.metrics);
                set.tell_expiry(&self.metrics);
                self.current.store(Arc::new(set));
            }
            Err(error) => tracing::error!(%error, "certificates not reloaded, the old ones stay"),
        }
    }

    /// Looks at the files, until dropped.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut tick = interval(LOOK);
        loop {
            tick.tick().await;
            let set = self.current.load_full();
            if set.all.is_empty() {
                continue;
            }
            // Files may be somewhere slow.
            let looked = spawn_blocking({
                let set = set.clone();
                move || set.all.iter().map(|certificate| look(certificate)).collect()
            });
            if let Ok(looks) = looked.await {
                self.renew(&set, looks);
            }
        }
    }

    fn renew(&self, before: &Arc<Set>, looks: Vec<Look>) {
        let mut all = Vec::with_capacity(looks.len());
        let mut fresh = Vec::new();
        for (old, look) in before.all.iter().zip(looks) {
            match look {
                Look::Same => {
                    self.problems().remove(&old.files.cert);
                    all.push(old.clone());
                }
                Look::Bad(problem) => {
                    self.tell_problem(&old.files, problem);
                    all.push(old.clone());
                }
                Look::Read(new) => {
                    self.problems().remove(&old.files.cert);
                    fresh.push(new.clone());
                    all.push(new);
                }
            }
        }
        if fresh.is_empty() {
            return;
        }
        match Set::new(all, &self.provider, &self.ticketer) {
            Ok(set) => {
                let _change = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                // Otherwise another list came meanwhile: its files are looked at next time.
                if Arc::ptr_eq(&self.current.load(), before) {
                    for certificate in &fresh {
                        self.tell(certificate);
                    }
                    set.tell_expiry(&self.metrics);
                    self.current.store(Arc::new(set));
                }
            }
            Err(error) => tracing::error!(%error, "certificates not reloaded, the old ones stay"),
        }
    }

    fn tell(&self, certificate: &Certificate) {
        let Certificate { files, names, not_after, .. } = certificate;
        let until = humantime::format_rfc3339_seconds(*not_after);
        tracing::info!(file = ?files.cert, ?names, %until, "certificate loaded");
        self.metrics.certificate_reload("ok");
    }

    /// Once, not at every look.
    fn tell_problem(&self, files: &CertificateFiles, problem: String) {
        let mut problems = self.problems();
        if problems.get(&files.cert) != Some(&problem) {
            tracing::error!(file = ?files.cert, %problem, "certificate not reloaded, the old one stays");
            self.metrics.certificate_reload("failed");
            problems.insert(files.cert.clone(), problem);
        }
    }

    fn problems(&self) -> MutexGuard<'_, HashMap<PathBuf, String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(certificate: &Certificate) -> Look {
    if certificate.is_as_read() {
        return Look::Same;
    }
    match Certificate::read(&certificate.files) {
        Ok(new) => Look::Read(Arc::new(new)),
        Err(problem) => Look::Bad(problem),
    }
}

impl Set {
    fn new(
        all: Vec<Arc<Certificate>>,
        provider: &Arc<CryptoProvider>,
        ticketer: &Arc<dyn ProducesTickets>,
    ) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Choice::of(&all)));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // All that resuming takes is in the client's ticket: memory is bounded, workers share nothing but keys.
        config.ticketer = ticketer.clone();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Data before the handshake's end can be played again by others (RFC 8446 §8).
        config.max_early_data_size = 0;
        Ok(Self { all, config: Arc::new(config) })
    }

    fn tell_expiry(&self, metrics: &Metrics) {
        for certificate in &self.all {
            let since = certificate.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            metrics.certificate_expiry(label(certificate), since.as_secs_f64());
        }
    }

    fn forget_expiry(&self, metrics: &Metrics) {
        for certificate in &self.all {
            metrics.certificate_expiry(label(certificate), f64::NAN);
        }
    }
}

fn label(certificate: &Certificate) -> String {
    certificate.files.cert.display().to_string()
}
