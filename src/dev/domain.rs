//! `--tls`: one domain, whose names are the control API's and the sandboxes'.
//!
//! The proxy serves it as any domain. The API is to it one more sandbox, `api`, with the port that a name
//! without one means: so it is reached by the path that all requests take.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::{net::lookup_host, time::timeout};

use super::{authority::Files, banner::variable, options::Options};

/// What the proxy takes the control API for.
pub(crate) const API: &str = "api";
/// What a resolver may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Domain {
    name: String,
    wanted: SocketAddr,
    files: Files,
    /// Known when the proxy is bound.
    bound: OnceLock<SocketAddr>,
}

impl Domain {
    /// `None` without `--tls`.
    pub(super) fn of(options: &Options) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = options.addresses().tls else { return Ok(None) };
        let name = options.domain.clone();
        let files = Files::make(&name, options.authority.as_deref()).context("--tls")?;
        Ok(Some(Self { name, wanted, files, bound: OnceLock::new() }))
    }

    pub(super) fn bind(&self, address: SocketAddr) {
        let _ = self.bound.set(address);
    }

    /// What SDKs build names from: with the port, where it is not that of HTTPS.
    pub(crate) fn authority(&self) -> String {
        match self.bound.get().unwrap_or(&self.wanted).port() {
            443 => self.name.clone(),
            port => format!("{}:{port}", self.name),
        }
    }

    /// Whether a Host is the API's: its own name, or as the proxy writes it, `{port}-api.<domain>`.
    pub(crate) fn is_api(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let is_api = |label: &str| match label.rsplit_once('-') {
            Some((port, label)) => label == API && port.bytes().all(|byte| byte.is_ascii_digit()),
            None => label == API,
        };
        let (label, domain) = name.split_once('.').unwrap_or_default();
        domain.eq_ignore_ascii_case(&self.name) && is_api(&label.to_ascii_lowercase())
    }

    /// What the proxy learns of the sandbox `api`.
    pub(super) fn record(api: SocketAddr) -> Value {
        json!({ "sandboxID": API, "state": "running", "nodeIP": api.ip() })
    }

    /// The configuration's `[server]`, from its domains on.
    pub(super) fn config(&self, api: SocketAddr) -> anyhow::Result<String> {
        let quoted = |path: &Path| {
            let text = path.to_str().context("the folder's name is no text")?;
            anyhow::Ok(toml::Value::from(text).to_string())
        };
        Ok(format!(
            "domains = [\"localhost\", \"{}\"]\n\
             default_port = {} # of api.{}\n\
             [server.tls]\n\
             listen = [\"{}\"]\n\
             certificates = [{{ cert = {}, key = {} }}]\n",
            self.name,
            api.port(),
            self.name,
            self.wanted,
            quoted(&self.files.certificate)?,
            quoted(&self.files.key)?,
        ))
    }

    /// Whether this machine finds any name of the domain where it is served.
    async fn resolves(&self, at: SocketAddr) -> bool {
        let name = format!("49983-anything.{}", self.name);
        let found = timeout(PATIENCE, lookup_host((name, at.port()))).await;
        found.is_ok_and(|found| found.is_ok_and(|mut found| found.any(|address| address == at)))
    }

    /// What there is to know of it, with commands to paste.
    pub(super) async fn banner(&self, key: Option<&str>) -> String {
        let at = *self.bound.get().unwrap_or(&self.wanted);
        self.text(key, at.ip(), self.resolves(at).await)
    }

    fn text(&self, key: Option<&str>, ip: IpAddr, resolves: bool) -> String {
        let (name, authority) = (&self.name, self.authority());
        let (ca, bundle) = (self.files.authority.display(), self.files.bundle.display());
        let (mut text, key) = (String::new(), variable(key));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            r"
  The same over TLS under one domain, as in production: the control API at https://{API}.{authority},
  sandboxes at https://{{port}}-$ID.{authority}. For E2B's SDKs, instead of the line above:

    unset E2B_API_URL E2B_SANDBOX_URL
    export {key}E2B_DOMAIN={authority}
    export SSL_CERT_FILE={bundle} NODE_EXTRA_CA_CERTS={ca}
"
        );
        if resolves {
            return text;
        }
        let _ = write!(
            text,
            r"
  This machine does not find names below {name}. Two in /etc/hosts do for the SDKs (not for get_host):

    echo '{ip} {API}.{name} sandbox.{name}' | sudo tee -a /etc/hosts
    export E2B_SANDBOX_URL=https://sandbox.{authority}
"
        );
        if name.ends_with(".localhost") && ip == Ipv4Addr::LOCALHOST {
            text += "\n  Or all of them, on Debian and Ubuntu: sudo apt-get install libnss-myhostname\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(name: &str, port: u16) -> Domain {
        let files = Files::make(name, None).expect("files");
        Domain { name: name.to_owned(), wanted: (Ipv4Addr::LOCALHOST, port).into(), files, bound: OnceLock::new() }
    }

    #[test]
    fn the_api_has_one_name() {
        let domain = domain("e2b.localhost", 3443);
        for good in ["api.e2b.localhost", "API.e2b.LOCALHOST:3443", "3000-api.e2b.localhost:3443"] {
            assert!(domain.is_api(good), "{good}");
        }
        for bad in [
            "",
            "e2b.localhost",
            "x.e2b.localhost",
            "evil-api.e2b.localhost",
            "3000-x.e2b.localhost",
            "api.e2b.localhost.evil.example",
            "api.evil.example",
            "x.api.e2b.localhost",
            "localhost",
        ] {
            assert!(!domain.is_api(bad), "{bad}");
        }
    }

    #[test]
    fn the_words_fit_the_machine_and_the_port() {
        let text = |name, port, resolves| domain(name, port).text(Some("e2b_0"), Ipv4Addr::LOCALHOST.into(), resolves);
        let found = text("e2b.localhost", 3443, true);
        assert!(found.contains("E2B_API_KEY=e2b_0 E2B_DOMAIN=e2b.localhost:3443\n") && !found.contains("/etc/hosts"));
        let not_found = text("e2b.localhost", 443, false);
        assert!(not_found.contains("echo '127.0.0.1 api.e2b.localhost sandbox.e2b.localhost'"));
        assert!(not_found.contains("E2B_SANDBOX_URL=https://sandbox.e2b.localhost\n"));
        assert!(not_found.contains("libnss-myhostname"));
        assert!(!text("e2b.test", 443, false).contains("libnss-myhostname"));
    }
}
