//! `client-proxy dev`: its command line.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use clap::Args;

use super::interpreter;

/// A local playground: E2B's control API in memory, sandboxes as local processes that really sleep, and
/// this proxy in front of them.
///
/// For development: it serves loopback only and isolates nothing. A sandbox is a process of yours and
/// may do whatever you may.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the control API listens (loopback only; port 0 = any free one)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000", value_parser = loopback)]
    pub api: SocketAddr,

    /// Where the proxy listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3002", value_parser = loopback)]
    pub proxy: SocketAddr,

    /// Where the proxy answers health probes and serves metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3003", value_parser = loopback)]
    pub health: SocketAddr,

    /// Where the proxy's admin pages are
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3004", value_parser = loopback)]
    pub admin: SocketAddr,

    /// Serve the control API and all sandboxes under one domain over TLS too, as in production, at 127.0.0.1:3443 or
    /// ADDRESS
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:3443",
        value_parser = loopback, conflicts_with = "demo")]
    pub tls: Option<SocketAddr>,

    /// The domain of --tls: the API is api.DOMAIN, a sandbox's port {port}-{id}.DOMAIN
    #[arg(long, value_name = "NAME", default_value = "e2b.localhost", requires = "tls", value_parser = domain)]
    pub domain: String,

    /// Keep the authority of --tls in this folder, so that it can be trusted once; it can vouch for names of
    /// its domain only [default: a new one at each start, whose key is not kept]
    #[arg(long, value_name = "FOLDER", requires = "tls")]
    pub authority: Option<PathBuf>,

    /// A further template: its sandboxes run COMMAND by `sh -c` in their own root, with `SANDBOX_IP` set to the
    /// address to listen on; may be repeated. Example: `web='python3 -m http.server 8000 --bind $SANDBOX_IP'`
    #[arg(long = "template", value_name = "NAME=COMMAND")]
    pub templates: Vec<Template>,

    /// The Python of the template `code-interpreter-v1`, with ipykernel and `jupyter_client` [default: `python3`
    /// on the path]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,

    /// Tell the story by itself, on free ports, and exit: 0 if every step was as told, otherwise 1
    #[arg(long)]
    pub demo: bool,

    /// How long a resume takes at least, to see requests being held [default: as fast as it is; with
    /// --demo 300ms]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub resume_delay: Option<Duration>,

    /// How long a pause takes at least, to see requests being held [default: as fast as it is]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub pause_delay: Option<Duration>,

    /// How many sandboxes may run at once; creates and wakes beyond get 429
    #[arg(long, value_name = "N")]
    pub team_limit: Option<usize>,

    /// The account is not allow-listed: traffic wakes are refused with 403
    #[arg(long)]
    pub deny: bool,

    /// How long a paused sandbox is kept [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub retention: Option<Duration>,

    /// How long a call waits for a pause or resume under way before it is told 409
    #[arg(long, value_name = "DURATION", default_value = "30s", hide = true, value_parser = duration)]
    pub transition_wait: Duration,

    /// How long a create waits for a template's command to serve or to end
    #[arg(long, value_name = "DURATION", default_value = "2s", hide = true, value_parser = duration)]
    pub command_wait: Duration,

    /// How long the removal of an ended sandbox's files takes at least
    #[arg(long, value_name = "DURATION", default_value = "0s", hide = true, value_parser = duration)]
    pub remove_delay: Duration,

    /// The program that runs inside sandboxes [default: this one]
    #[arg(long, value_name = "PATH", hide = true)]
    pub agent_program: Option<PathBuf>,
}

/// The templates that every playground has.
pub(crate) const BUILT_IN: [&str; 3] = ["base", "counter", interpreter::TEMPLATE];

impl Options {
    /// The addresses to bind: those given, or free ports for the demo.
    pub(crate) fn addresses(&self) -> Addresses {
        if self.demo {
            return Addresses::free();
        }
        let Self { api, proxy, health, admin, tls, .. } = *self;
        Addresses { api, proxy, health, admin, tls }
    }
}

/// Where the playground's doors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The control API.
    pub api: SocketAddr,
    /// The proxy.
    pub proxy: SocketAddr,
    /// Health, readiness, metrics.
    pub health: SocketAddr,
    /// The admin pages.
    pub admin: SocketAddr,
    /// The proxy over TLS.
    pub tls: Option<SocketAddr>,
}

/// A kind of sandbox that somebody defined on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// `templateID` at creation.
    pub name: String,
    /// What `sh -c` is given.
    pub command: String,
}

/// Why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTemplate(&'static str);

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadTemplate {}

impl FromStr for Template {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, BadTemplate> {
        let (name, command) = text.split_once('=').ok_or(BadTemplate("write NAME=COMMAND"))?;
        let named = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !named {
            return Err(BadTemplate("NAME may hold letters, digits, '-', '_' and '.'"));
        }
        if BUILT_IN.contains(&name) {
            return Err(BadTemplate("base, counter and code-interpreter-v1 are there already"));
        }
        if command.trim().is_empty() {
            return Err(BadTemplate("COMMAND is empty"));
        }
        Ok(Self { name: name.to_owned(), command: command.to_owned() })
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .replace("localhost:", "127.0.0.1:")
        .parse()
        .map_err(|_| "write ADDRESS:PORT, like 127.0.0.1:3000".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("the playground gives whoever reaches it a shell: loopback addresses only".to_owned())
    }
}

/// Two labels at least: clients take no certificate for `*.localhost` (RFC 6125 §7.2 leaves it to them).
fn domain(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let is_label = |label: &str| {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_address = name.parse::<IpAddr>().is_ok();
    if name.len() <= 180 && name.contains('.') && name.split('.').all(is_label) && !is_address {
        Ok(name)
    } else {
        Err("write a name of at least two labels, like e2b.localhost".to_owned())
    }
}

/// Longer than any playground runs, and short enough to be added to any time.
const LONGEST: Duration = Duration::from_hours(365 * 24);

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration <= LONGEST { Ok(duration) } else { Err("365days is the longest".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_have_a_name_and_a_command() {
        let web: Template = "web=sleep 1; x=2".parse().expect("a template");
        assert_eq!((web.name.as_str(), web.command.as_str()), ("web", "sleep 1; x=2"));
        for bad in ["web", "=x", "a b=x", "base=x", "counter=x", "code-interpreter-v1=x", "web= "] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_loopback_is_served() {
        assert!(loopback("127.0.0.1:0").is_ok());
        assert!(loopback("localhost:3000").is_ok());
        assert!(loopback("[::1]:3000").is_ok());
        for bad in ["0.0.0.0:3000", "[::]:3000", "10.0.0.1:80", "x", "127.0.0.1"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn domains_have_two_labels() {
        assert_eq!(domain("E2B.localhost"), Ok("e2b.localhost".to_owned()));
        assert!(domain("127.0.0.1.sslip.io").is_ok());
        for bad in ["localhost", "", "a..b", ".a.b", "a.b.", "-a.b", "a_b.c", "127.0.0.1", "a.b:80", "*.a.b"] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_an_end() {
        assert_eq!(duration("365days"), Ok(LONGEST));
        for bad in ["366days", "584000000000years", "18446744073709551615s", "5", ""] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
