//! From an address to a connected socket: names are resolved and remembered for a moment, forbidden
//! addresses refused after resolution, a port that was just woken is given time to open.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, sleep, timeout},
};

use super::{
    ListenerGuard,
    ways::{Way, Ways},
};
use crate::types::SandboxId;

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// No answer in `connect_timeout`.
    #[error("connect timed out")]
    TimedOut,
    /// It cannot be reached.
    #[error("unreachable: {0}")]
    Unreachable(io::Error),
    /// An address that this proxy must not dial.
    #[error("the address {0} is not for dialling")]
    Forbidden(IpAddr),
    /// This machine has no descriptor left; that says nothing of the other side.
    #[error("no room for another connection here: {0}")]
    NoRoom(io::Error),
    /// Somebody listens there, but not the sandbox.
    #[error("the listener is not the sandbox's")]
    NotItsListener,
}

/// For those who waited for the same dial.
impl Clone for DialError {
    fn clone(&self) -> Self {
        let another = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::Refused => Self::Refused,
            Self::TimedOut => Self::TimedOut,
            Self::Unreachable(error) => Self::Unreachable(another(error)),
            Self::Forbidden(ip) => Self::Forbidden(*ip),
            Self::NoRoom(error) => Self::NoRoom(another(error)),
            Self::NotItsListener => Self::NotItsListener,
        }
    }
}

impl DialError {
    /// The word in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Forbidden(_) => "forbidden",
            Self::NoRoom(_) => "no_room",
            Self::NotItsListener => "not_its_listener",
        }
    }
}

/// What may be dialled, and how long that may take.
#[derive(Clone)]
pub(crate) struct DialRules {
    pub(crate) connect_timeout: Duration,
    pub(crate) attempts: u32,
    /// The last hop is ours: addresses that are no sandbox's are refused.
    pub(crate) restricted: bool,
    pub(crate) allow_loopback: bool,
    pub(crate) guard: Option<Arc<dyn ListenerGuard>>,
    pub(crate) ways: Ways,
}

/// A machine that is gone without a word is found out by its kernel's silence, also where nothing else is waited
/// for: in a tunnel, in an answer that streams. That of a frozen sandbox answers.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));

/// Until when a dial may be repeated because the sandbox was woken just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    /// The end of the time for being held: no dial begins after it.
    pub(crate) deadline: Instant,
}

pub(crate) struct Dialer {
    rules: DialRules,
    names: RefCell<HashMap<Rc<str>, Name>>,
}

/// What a name stood for, and how long that is believed.
struct Name {
    addresses: Vec<SocketAddr>,
    until: Instant,
}

/// The resolver of the system tells no time to live.
const NAME_TTL: Duration = Duration::from_secs(5);
const MAX_NAMES: usize = 1024;
const RUNG: Duration = Duration::from_millis(100);

impl Dialer {
    pub(crate) fn new(rules: DialRules) -> Self {
        Self { rules, names: RefCell::default() }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.rules.connect_timeout
    }

    /// Connects to `address`, an authority with port.
    pub(crate) async fn dial(
        &self,
        address: &str,
        sandbox: &SandboxId,
        ladder: Option<Ladder>,
    ) -> Result<(TcpStream, Way), DialError> {
        let way = self.rules.ways.take().ok_or_else(|| DialError::NoRoom(Errno::MFILE.into()))?;
        let mut attempt = 1;
        loop {
            let error = match self.once(address, sandbox).await {
                Ok(stream) => return Ok((stream, way.opened())),
                Err(error) => error,
            };
            let Some(ladder) = ladder else { return Err(error) };
            match error {
                DialError::Refused | DialError::NotItsListener
                    if attempt < self.rules.attempts && Instant::now() + RUNG * attempt < ladder.deadline =>
                {
                    sleep(RUNG * attempt).await;
                    attempt += 1;
                }
                DialError::TimedOut if Instant::now() < ladder.deadline => {}
                error => return Err(error),
            }
        }
    }

    pub(crate) fn ways(&self) -> &Ways {
        &self.rules.ways
    }

    async fn once(&self, address: &str, sandbox: &SandboxId) -> Result<TcpStream, DialError> {
        let addresses = match address.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolve(address).await?,
        };
        let mut last = DialError::Unreachable(io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            if self.rules.restricted && forbidden(address.ip(), self.rules.allow_loopback) {
                return Err(DialError::Forbidden(address.ip()));
            }
            if let Some(guard) = &self.rules.guard
                && !guard.may_dial(sandbox, address).await
            {
                return Err(DialError::NotItsListener);
            }
            last = match timeout(self.rules.connect_timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small requests and answers are not held back for an acknowledgement.
                    let _ = stream.set_nodelay(true);
                    let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
                    return Ok(stream);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => DialError::Refused,
                Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => DialError::TimedOut,
                Ok(Err(error)) if is_ours(&error) => return Err(DialError::NoRoom(error)),
                Ok(Err(error)) => DialError::Unreachable(error),
                Err(_) => DialError::TimedOut,
            };
        }
        Err(last)
    }

    async fn resolve(&self, address: &str) -> Result<Vec<SocketAddr>, DialError> {
        let now = Instant::now();
        if let Some(name) = self.names.borrow().get(address)
            && now < name.until
        {
            return Ok(name.addresses.clone());
        }
        let looked_up = timeout(self.rules.connect_timeout, lookup_host(address)).await;
        let addresses: Vec<_> = looked_up.map_err(|_| DialError::TimedOut)?.map_err(DialError::Unreachable)?.collect();
        let mut names = self.names.borrow_mut();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(address.into(), Name { addresses: addresses.clone(), until: now + NAME_TTL });
        Ok(addresses)
    }
}

/// Out of descriptors (this process, this machine) or of memory for sockets.
fn is_ours(error: &io::Error) -> bool {
    let ours = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| ours.iter().any(|errno| errno.raw_os_error() == code))
}

/// What clouds serve their machines' secrets on.
const METADATA_V4: [[u8; 4]; 6] = [
    [169, 254, 169, 254], // most
    [169, 254, 170, 2],   // ECS tasks
    [169, 254, 170, 23],  // EKS pods
    [168, 63, 129, 16],   // Azure
    [192, 0, 0, 192],     // Oracle
    [100, 100, 100, 200], // Alibaba
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // EC2
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // EKS pods
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
];

/// Addresses that are never a sandbox: this machine itself, the link, groups, and metadata services. An IPv4
/// address in IPv6 clothes is judged as IPv4.
fn forbidden(ip: IpAddr, allow_loopback: bool) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let local = ip.is_loopback() || ip.is_link_local();
            METADATA_V4.contains(&ip.octets())
                || ip.octets()[0] == 0
                || ip.is_multicast()
                || ip.is_broadcast()
                || (local && !allow_loopback)
        }
        IpAddr::V6(ip) => {
            let local = ip.is_loopback() || ip.is_unicast_link_local();
            METADATA_V6.contains(&ip)
                || ip.is_multicast()
                || (local && !allow_loopback)
                || worn_v4(ip).is_some_and(|ip| forbidden(ip.into(), allow_loopback))
        }
    }
}

/// The IPv4 address that an IPv6 address stands for, where some gateway or kernel may translate it.
fn worn_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = ip.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match ip.segments() {
        // Not the unspecified address in IPv4-compatible form, though it looks like it.
        [0, 0, 0, 0, 0, 0, 0, 1] => None,
        // Mapped; IPv4-compatible; NAT64 (RFC 6052), also where it is local (RFC 8215).
        [0, 0, 0, 0, 0, 0xffff | 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => Some(v4(high, low)),
        // 6to4
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_looks_after_sandboxes_that_say_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let rules = DialRules {
            connect_timeout: Duration::from_secs(1),
            attempts: 1,
            restricted: false,
            allow_loopback: true,
            guard: None,
            ways: Ways::new(1, metrics::Gauge::noop()),
        };
        let sandbox = SandboxId::new("abc").expect("an id");
        let (stream, _way) = Dialer::new(rules).dial(&address, &sandbox, None).await.expect("a connection");
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("a socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket"), Duration::from_secs(30));
    }

    #[test]
    fn no_sandbox_lives_at_these_addresses() {
        for (text, refused, refused_in_the_playground) in [
            ("10.0.0.1", false, false),
            ("2001:db8::1", false, false),
            ("127.0.0.1", true, false),
            ("::1", true, false),
            ("::ffff:127.0.0.1", true, false),
            ("169.254.1.1", true, false),
            ("fe80::1", true, false),
            ("169.254.169.254", true, true),
            ("::ffff:169.254.169.254", true, true),
            ("fd00:ec2::254", true, true),
            ("100.100.100.200", true, true),
            ("169.254.170.2", true, true),
            ("169.254.170.23", true, true),
            ("168.63.129.16", true, true),
            ("192.0.0.192", true, true),
            ("fd00:ec2::23", true, true),
            ("fd20:ce::254", true, true),
            ("::169.254.169.254", true, true),
            ("::127.0.0.1", true, false),
            ("64:ff9b::169.254.169.254", true, true),
            ("64:ff9b::7f00:1", true, false),
            ("64:ff9b:1::168.63.129.16", true, true),
            ("2002:a9fe:a9fe::1", true, true),
            ("2002:7f00:1::", true, false),
            ("64:ff9b::10.0.0.1", false, false),
            ("2002:a00:1::a9fe:a9fe", false, false),
            ("::ffff:10.0.0.1", false, false),
            ("0.0.0.0", true, true),
            ("0.1.2.3", true, true),
            ("::", true, true),
            ("224.0.0.1", true, true),
            ("255.255.255.255", true, true),
            ("ff02::1", true, true),
        ] {
            let ip = text.parse().expect("an address");
            assert_eq!((forbidden(ip, false), forbidden(ip, true)), (refused, refused_in_the_playground), "{text}");
        }
    }
}
