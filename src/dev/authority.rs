//! `--tls`: an authority that vouches for the names of one domain only, and the certificate for all of them.

use std::{
    fs::{self, DirBuilder, File},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData as _,
};

use super::random::random_name;

const DAY: Duration = Duration::from_hours(24);
const AUTHORITY_DAYS: u32 = 3650;
/// Made anew at each start; the longest that browsers take.
const CERTIFICATE_DAYS: u32 = 397;

/// The files that the proxy and its clients read. What is not to be kept is removed when this is dropped.
pub(super) struct Files {
    /// The certificate of all names.
    pub(super) certificate: PathBuf,
    /// Its key.
    pub(super) key: PathBuf,
    /// The authority's own certificate.
    pub(super) authority: PathBuf,
    /// That, and whom this machine trusts besides: for clients that trust one file.
    pub(super) bundle: PathBuf,
    _folder: Folder,
}

impl Files {
    /// Takes the authority that is in the folder `kept`, or makes one there. Without a folder it makes one whose
    /// key nobody ever sees. Fails where files cannot be written, or `kept` holds another domain's authority.
    pub(super) fn make(domain: &str, kept: Option<&Path>) -> anyhow::Result<Self> {
        let folder = Folder::new()?;
        let (issuer, text) = match kept {
            Some(kept) => {
                keep(domain, kept).with_context(|| format!("the authority in {} is of no use", kept.display()))?
            }
            None => create(domain)?,
        };
        let place = kept.unwrap_or(&folder.0);
        let place = fs::canonicalize(place)?;
        let (authority, bundle) = (place.join("ca.pem"), place.join("bundle.pem"));
        if kept.is_none() {
            write(&authority, &text, 0o644)?;
        }
        replace(&bundle, &with_those_of_the_machine(&text)?)?;
        let own = KeyPair::generate()?;
        let (certificate, key) = (folder.0.join("cert.pem"), folder.0.join("cert.key"));
        write(&key, &own.serialize_pem(), 0o600)?;
        write(&certificate, &names_of(domain)?.signed_by(&own, &issuer)?.pem(), 0o644)?;
        Ok(Self { certificate, key, authority, bundle, _folder: folder })
    }
}

type Authority = (Issuer<'static, KeyPair>, String);

fn create(domain: &str) -> anyhow::Result<Authority> {
    let mut params = lasting(CertificateParams::default(), AUTHORITY_DAYS);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name_of(domain));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Whoever trusts it trusts it for nothing else (RFC 5280 §4.2.1.10).
    let permitted_subtrees = vec![GeneralSubtree::DnsName(domain.to_owned())];
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    let key = KeyPair::generate()?;
    let text = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), text))
}

fn name_of(domain: &str) -> String {
    format!("client-proxy playground, {domain}")
}

fn names_of(domain: &str) -> anyhow::Result<CertificateParams> {
    let mut params = lasting(CertificateParams::new([format!("*.{domain}"), domain.to_owned()])?, CERTIFICATE_DAYS);
    params.distinguished_name = DistinguishedName::new();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Python takes none without it (RFC 5280 §4.2.1.1).
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// From yesterday on: clocks differ.
fn lasting(mut params: CertificateParams, days: u32) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * days).into();
    params
}

/// The authority in this folder, made if there is none.
fn keep(domain: &str, folder: &Path) -> anyhow::Result<Authority> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (certificate, key) = (folder.join("ca.pem"), folder.join("ca.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => read(domain, &certificate, &key),
        (false, false) => {
            let (issuer, text) = create(domain)?;
            write(&key, &issuer.key().serialize_pem(), 0o600)?;
            write(&certificate, &text, 0o644)?;
            Ok((issuer, text))
        }
        _ => bail!("of ca.pem and ca.key one is missing: remove the other"),
    }
}

fn read(domain: &str, certificate: &Path, key: &Path) -> anyhow::Result<Authority> {
    let others = fs::metadata(key)?.permissions().mode() & 0o077;
    ensure!(others == 0, "ca.key can be read by others: chmod 600 {}", key.display());
    let text = fs::read_to_string(certificate)?;
    let key = KeyPair::from_pem(&fs::read_to_string(key)?).context("ca.key")?;
    let parsed = pem::parse(&text).context("ca.pem")?;
    let (_, known) = x509_parser::parse_x509_certificate(parsed.contents()).context("ca.pem")?;
    let named = known.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    ensure!(named == Some(&name_of(domain)), "it is not for {domain}: give another folder");
    ensure!(known.public_key().raw == key.subject_public_key_info(), "ca.key is not the key of ca.pem");
    let ends = known.validity().not_after.timestamp();
    let enough = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + DAY * CERTIFICATE_DAYS;
    ensure!(u64::try_from(ends)? > enough.as_secs(), "it ends within {CERTIFICATE_DAYS} days: remove its files");
    Ok((Issuer::from_ca_cert_pem(&text, key)?, text))
}

fn with_those_of_the_machine(text: &str) -> anyhow::Result<String> {
    let own = pem::parse(text)?;
    let others = rustls_native_certs::load_native_certs().certs.into_iter();
    let others = others.filter(|other| other.as_ref() != own.contents());
    let others: Vec<_> = others.map(|other| pem::Pem::new("CERTIFICATE", other.to_vec())).collect();
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    Ok(text.to_owned() + &pem::encode_many_config(&others, config))
}

fn write(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let opened = File::options().write(true).create_new(true).mode(mode).open(file);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| file.display().to_string())
}

/// Nobody reads half of it.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = file.with_extension(random_name(8)?);
    write(&fresh, text, 0o644)?;
    Ok(fs::rename(fresh, file)?)
}

/// One's own alone; gone when dropped. What a killed playground leaves there is a key that vouches for a name of
/// this machine, to those who still trust an authority whose own key is gone.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("client-proxy-tls-{}", random_name(12)?));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
