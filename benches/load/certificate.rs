//! One ECDSA P-256 key and a certificate of its own for it, which all proxies show: what a handshake costs depends
//! on the kind of key more than on anything else.

use std::{fs, path::PathBuf};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use crate::peers::HOST;

/// In a folder of its own, removed when dropped.
pub(crate) struct Certificate {
    folder: TempDir,
}

impl Certificate {
    pub(crate) fn make() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("client-proxy-load-").tempdir()?;
        let this = Self { folder };
        // P-256 is what rcgen makes unless it is told otherwise.
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([HOST.to_owned()])?;
        let (cert, key) = (cert.pem(), signing_key.serialize_pem());
        fs::write(this.chain(), &cert)?;
        fs::write(this.key(), &key)?;
        fs::write(this.both(), cert + &key)?;
        Ok(this)
    }

    /// The file of the certificate, in PEM.
    pub(crate) fn chain(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// The file of its key, in PEM.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// One file for whoever wants both in one.
    pub(crate) fn both(&self) -> PathBuf {
        self.folder.path().join("both.pem")
    }
}
