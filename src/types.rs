//! Floor 0: the nouns of the house. A value of these types is valid because it exists.

use std::{fmt, num::NonZeroU16, str::FromStr, sync::Arc, time::Duration};

use ring::digest::{Context, SHA256};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

pub use self::client::ClientNet;

mod client;

/// The name of a sandbox: `[a-z0-9]+`, at most 63 bytes (it is part of a DNS label, RFC 1035 §2.3.4).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(Arc<str>);

impl SandboxId {
    const MAX: usize = 63;

    /// Accepts `text` if it is a sandbox id.
    pub fn new(text: &str) -> Option<Self> {
        let valid = (1..=Self::MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        valid.then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for SandboxId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A TCP port of a sandbox: 1..=65535.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(NonZeroU16);

impl Port {
    /// Where envd, the agent inside every sandbox, listens.
    pub const ENVD: Self = Self(NonZeroU16::new(49983).expect("not zero"));

    /// Accepts any number but zero.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// The port as a number.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// Whether this is envd's port, which has tokens and routes of its own.
    pub fn is_envd(self) -> bool {
        self == Self::ENVD
    }
}

impl FromStr for Port {
    type Err = ();

    /// Digits only: no sign, no space, as in a URI's port (RFC 3986 §3.2.3).
    fn from_str(text: &str) -> Result<Self, ()> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        text.parse().ok().and_then(Self::new).ok_or(())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The host part of the machine that runs a sandbox, as it stands in an authority: a name, an IPv4
/// address, or an IPv6 address in brackets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Node(Arc<str>);

impl Node {
    /// Trims, brackets bare IPv6, and refuses what cannot be the host of an authority
    /// (RFC 3986 §3.2.2). An empty text is refused: the route is unavailable.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<std::net::IpAddr>() {
            return Some(Self(match ip {
                std::net::IpAddr::V4(ip) => ip.to_string().into(),
                std::net::IpAddr::V6(ip) => format!("[{ip}]").into(),
            }));
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let is_name = text.len() <= 253
            && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
            // All digits and dots, yet no address: a mistyped address, not a name.
            && !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_name.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The host as it stands in an authority.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A token or key. It is never printed, and compared in constant time.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Wraps the bytes as they came.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self(bytes.as_ref().into())
    }

    /// The bytes, for the one place that must send or hash them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Compares in time that depends on the lengths alone.
    pub fn matches(&self, other: &[u8]) -> bool {
        self.0.ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a caller shows to have a sandbox woken: the port it wants and its two tokens.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The requested port.
    pub port: Port,
    /// `e2b-traffic-access-token`: guards the user ports of a private sandbox.
    pub traffic_token: Option<Secret>,
    /// `X-Access-Token`: guards envd.
    pub access_token: Option<Secret>,
}

impl Credentials {
    /// Two callers with equal digests may share a wake and its refusal. Only what a control plane can judge
    /// by counts: whether the port is envd's, and the one token that guards ports of that kind. A browser on
    /// five ports is one caller, and no caller becomes many by making up the other token.
    pub fn digest(&self) -> CredentialDigest {
        let mut context = Context::new(&SHA256);
        context.update(&[u8::from(self.port.is_envd())]);
        let guard = if self.port.is_envd() { &self.access_token } else { &self.traffic_token };
        context.update(&[u8::from(guard.is_some())]);
        context.update(guard.as_ref().map(Secret::expose).unwrap_or_default());
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        CredentialDigest(digest)
    }
}

/// SHA-256 over [`Credentials`]: tells callers apart without keeping their tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CredentialDigest([u8; 32]);

impl fmt::Debug for CredentialDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// Why credentials do not open a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The user port is private and the request carries no traffic token.
    TrafficTokenMissing,
    /// The user port is private and the traffic token is another's.
    TrafficTokenInvalid,
    /// envd's token is missing or another's.
    AccessTokenInvalid,
    /// Its tokens are not the reason: the control plane does not let traffic wake it, as where the owner's account is
    /// not allow-listed.
    NotAllowed,
    /// The control plane said no, and not why.
    Denied,
}

/// The locks of one sandbox, as far as its control plane tells them.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// envd answers only to this token.
    pub envd_token: Option<Secret>,
    /// User ports are closed to callers without the traffic token.
    pub private: bool,
    /// The token that opens a private sandbox's user ports. A private sandbox without one stays shut.
    pub traffic_token: Option<Secret>,
}

impl Access {
    /// Whether these credentials may wake the sandbox.
    pub fn check_wake(&self, credentials: &Credentials) -> Result<(), Denial> {
        if !credentials.port.is_envd() {
            return self.check_traffic(credentials);
        }
        match (&self.envd_token, &credentials.access_token) {
            (None, _) => Ok(()),
            (Some(lock), Some(key)) if lock.matches(key.expose()) => Ok(()),
            (Some(_), _) => Err(Denial::AccessTokenInvalid),
        }
    }

    /// Whether these credentials may reach a running sandbox's user port. envd checks its own.
    pub fn check_traffic(&self, credentials: &Credentials) -> Result<(), Denial> {
        if credentials.port.is_envd() || !self.private {
            return Ok(());
        }
        match (&self.traffic_token, &credentials.traffic_token) {
            (_, None) => Err(Denial::TrafficTokenMissing),
            (Some(lock), Some(key)) if lock.matches(key.expose()) => Ok(()),
            (_, Some(_)) => Err(Denial::TrafficTokenInvalid),
        }
    }
}

/// One life of a sandbox at one place. A restart, a wake or a move makes another generation; numbers
/// are never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// What the control plane says of a running sandbox.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The machine; `None` where the entry names none (the route is unavailable unless the upstream
    /// address does without).
    pub node: Option<Node>,
    /// Names this run of the sandbox where the control plane has such a name (`execution_id`, or the
    /// start time); tells a restart on the same node from the run before.
    pub execution: Option<Arc<str>>,
    /// The sandbox's locks, where the control plane tells them.
    pub access: Option<Access>,
    /// When this ends by itself, where the control plane tells it.
    pub until: Option<Instant>,
}

/// A wake that this process caused.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    /// When its outcome was known.
    pub at: Instant,
    /// How long the control plane took.
    pub took: Duration,
}

/// Where to send requests for one sandbox now.
#[derive(Clone, Debug)]
pub struct Route {
    /// Place and locks.
    pub placement: Placement,
    /// Which life of the sandbox this is.
    pub generation: Generation,
    /// Set when this generation began with a wake of ours.
    pub woken: Option<Woken>,
}

/// Why a sandbox is not there for traffic, for good as far as this proxy is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The control plane knows no such sandbox.
    Unknown,
    /// It was killed.
    Killed,
    /// It sleeps, and its owner did not allow traffic to wake it.
    AutoResumeOff,
    /// Only its files were kept; traffic does not start it.
    FilesystemOnly,
    /// Its snapshot's retention is over.
    Expired,
    /// It may sleep, and this request is one that does not wake (`[wake]`, or its own wish).
    NotWoken,
}

impl Reason {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] =
        [Self::Unknown, Self::Killed, Self::AutoResumeOff, Self::FilesystemOnly, Self::Expired, Self::NotWoken];

    /// The word in answers and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Killed => "killed",
            Self::AutoResumeOff => "auto_resume_off",
            Self::FilesystemOnly => "filesystem_only",
            Self::Expired => "expired",
            Self::NotWoken => "not_woken",
        }
    }
}

#[cfg(test)]
mod tests;
