//! Certificates for TLS: read from PEM files, and fit to be served with because they exist.

use std::{
    fmt,
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ring::digest::{SHA256, digest};
use rustls::{
    Error,
    crypto::ring::default_provider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, parse_x509_certificate, prelude::ASN1Time};

use super::fault::Wrong;

/// A chain with its key.
pub struct Certificate {
    /// Where they were read from.
    pub files: CertificateFiles,
    /// What a TLS server signs with, and the chain that it shows.
    pub key: Arc<CertifiedKey>,
    /// The DNS names that it is for (RFC 6125 §6.4): lower case, `*.example.com` among them.
    pub names: Vec<String>,
    /// From when it is good.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
    /// Its serial number, bytes in hexadecimal with colons.
    pub serial: String,
    /// SHA-256 of it, likewise.
    pub fingerprint: String,
    /// When it was read.
    pub loaded: SystemTime,
    stamps: Stamps,
}

/// The two files of a [`Certificate`], in PEM; relative paths begin where the process was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// Which of the two a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Cert = 0,
    Key = 1,
}

/// What tells that a file is another than before; through links, as they are swapped where secrets are mounted.
/// `None`: it cannot be looked at.
type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;
type Stamps = [Stamp; 2];

/// More is no certificate.
const MAX_BYTES: u64 = 1024 * 1024;

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// All that is wrong with them, a line each. No key is in it.
    pub fn read(files: &CertificateFiles) -> Result<Self, String> {
        Self::load(files).map_err(|faults| {
            let line = |(part, Wrong { wrong, remedy }): &(Part, Wrong)| {
                format!("{}: {wrong}; {remedy}", files.of(*part).display())
            };
            faults.iter().map(line).collect::<Vec<_>>().join("\n")
        })
    }

    pub(crate) fn load(files: &CertificateFiles) -> Result<Self, Vec<(Part, Wrong)>> {
        // Before they are read: what is written meanwhile is seen as a change.
        let stamps = files.stamps();
        let chain = chain(&files.cert).map_err(|wrong| (Part::Cert, wrong));
        let key = key(&files.key).map_err(|wrong| (Part::Key, wrong));
        let (chain, key) = match (chain, key) {
            (Ok(chain), Ok(key)) => (chain, key),
            (chain, key) => return Err(chain.err().into_iter().chain(key.err()).collect()),
        };
        let fit = |leaf: &CertificateDer<'_>| {
            let bytes = digest(&SHA256, leaf);
            let (_, leaf) = parse_x509_certificate(leaf).map_err(|_| not_read("it is no X.509 certificate"))?;
            Ok((hexadecimal(bytes.as_ref()), Leaf::of(&leaf)))
        };
        let (fingerprint, leaf) = fit(&chain[0]).map_err(|wrong| vec![(Part::Cert, wrong)])?;
        let key = CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| vec![unfit(&error)])?;
        let Leaf { names, not_before, not_after, serial } = leaf;
        let (files, loaded) = (files.clone(), SystemTime::now());
        Ok(Self { files, key: Arc::new(key), names, not_before, not_after, serial, fingerprint, loaded, stamps })
    }

    /// Whether its files are still those that were read.
    pub(crate) fn is_as_read(&self) -> bool {
        self.files.stamps() == self.stamps
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, names, fingerprint, .. } = self;
        let shown = (files, names, fingerprint);
        f.debug_tuple("Certificate").field(&shown).finish()
    }
}

impl CertificateFiles {
    fn of(&self, part: Part) -> &Path {
        match part {
            Part::Cert => &self.cert,
            Part::Key => &self.key,
        }
    }

    fn stamps(&self) -> Stamps {
        let stamp = |file: Metadata| {
            let (written, changed) = ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
            (file.dev(), file.ino(), file.len(), written, changed)
        };
        [&self.cert, &self.key].map(|path| path.metadata().ok().map(stamp))
    }
}

/// What the first certificate of a chain says of itself.
struct Leaf {
    names: Vec<String>,
    not_before: SystemTime,
    not_after: SystemTime,
    serial: String,
}

impl Leaf {
    fn of(leaf: &X509Certificate<'_>) -> Self {
        let alternatives = leaf.subject_alternative_name().ok().flatten();
        let named = alternatives.iter().flat_map(|names| &names.value.general_names);
        let dns = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        };
        let validity = leaf.validity();
        Self {
            names: named.filter_map(dns).collect(),
            not_before: time(validity.not_before),
            not_after: time(validity.not_after),
            serial: hexadecimal(leaf.raw_serial()),
        }
    }
}

/// Before 1970 is long ago.
fn time(at: ASN1Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.timestamp()).unwrap_or_default())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Wrong> {
    let right = "write a PEM file with the whole chain, the server's own certificate first";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(path)?).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(Wrong::new("no certificate in it", right)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(Wrong::new(format!("not PEM: {error}"), right)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Wrong> {
    let right = "write a PEM file with a PKCS#8, PKCS#1 or SEC1 key that is not encrypted";
    PrivateKeyDer::from_pem_slice(&bytes(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => Wrong::new("no private key in it", right),
        // Its own words may repeat a line of the file.
        _ => Wrong::new("not PEM", right),
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, Wrong> {
    let read = || {
        // A pipe would be waited for.
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it has over 1 MiB"));
        }
        Ok(bytes)
    };
    read().map_err(|error| not_read(&error.to_string()))
}

fn not_read(why: &str) -> Wrong {
    Wrong::new(format!("cannot be read: {why}"), "write the path of a file that this process may read")
}

fn unfit(error: &Error) -> (Part, Wrong) {
    match error {
        Error::InconsistentKeys(_) => {
            let right = "write the file with this certificate's key; the server's own certificate is the chain's first";
            (Part::Key, Wrong::new("this key is another certificate's", right))
        }
        Error::InvalidCertificate(_) => {
            (Part::Cert, Wrong::new(format!("{error}"), "write the path of an X.509 v3 certificate for a server"))
        }
        _ => (Part::Key, Wrong::new("no key for TLS", "write the path of an RSA, ECDSA P-256/P-384 or Ed25519 key")),
    }
}
