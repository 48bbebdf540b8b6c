//! Floor 1: who does a request mean? Pure: a request head in, a sandbox and its port out, or why not.
//!
//! A Host that names a sandbox, `{port}-{id}[-ignored].{domain}`, decides alone. Only a Host that many
//! sandboxes share lets the two `E2b-Sandbox-*` headers decide. Runs on every request: the usual name
//! costs one allocation, the id's.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderValue, Method, Uri, Version, header::HOST, request::Parts, uri::Scheme};

use crate::types::{Port, SandboxId};

#[cfg(test)]
mod tests;

const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";

/// A Host longer than this many bytes is refused: DNS names have at most 253 (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// What the operator decided about names.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Accepted domain suffixes, lower case, without leading dot; empty = any.
    pub domains: Vec<String>,
    /// Host names, lower case, without port, that route by headers like `sandbox.<domain>`.
    pub header_hosts: Vec<String>,
    /// The port that `{id}.{domain}` means; `None`: such a Host is refused.
    pub default_port: Option<Port>,
    /// The only id that goes without a port then, and has no other; `None`: any.
    pub default_port_for: Option<SandboxId>,
    /// `sandbox.<domain>` is served below `domains` only, too. Otherwise under any domain: it names no sandbox.
    pub shared_within_domains: bool,
}

/// Who is meant, and under which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// Its port.
    pub port: Port,
    /// The Host that was routed, as the client wrote it: what goes upstream.
    pub host: HeaderValue,
    /// The sandbox's own Host, `{port}-{id}.<domain>[:port]`, where `host` is one that many sandboxes or
    /// ports share; `None` where it is the sandbox's own already or names no domain (localhost, IP).
    pub shared: Option<HeaderValue>,
}

/// Why a request means nobody. Carries nothing that the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misrouted {
    /// Host is missing, repeated, malformed, or disagrees with the request target; or it can name no sandbox.
    #[error("the Host is missing, malformed, ambiguous, or names no sandbox")]
    InvalidHost,
    /// A shared Host without both `E2b-Sandbox-Id` and `E2b-Sandbox-Port`.
    #[error("this Host needs both E2b-Sandbox-Id and E2b-Sandbox-Port")]
    MissingHeader,
    /// The id is not `[a-z0-9]+`, or its header is repeated.
    #[error("the sandbox id is malformed or repeated")]
    InvalidSandboxId,
    /// The port is not 1..=65535, or its header is repeated.
    #[error("the port is malformed, out of range or repeated")]
    InvalidPort,
    /// The domain is none of [`Rules::domains`] (RFC 9110 §15.5.20).
    #[error("the domain is not served here")]
    UnknownDomain,
    /// CONNECT asks for a forward proxy. An extended CONNECT (RFC 8441) must not come here as one.
    #[error("CONNECT is not served here")]
    ConnectMethod,
}

/// Finds the sandbox and port that a request head means.
///
/// HTTP/1.x and HTTP/2 alike: an authority in the request target (absolute form, `:authority`) is what
/// counts, RFC 9112 §3.2.2, RFC 9113 §8.3.1; otherwise Host.
pub fn route(head: &Parts, rules: &Rules) -> Result<Target, Misrouted> {
    if head.method == Method::CONNECT {
        return Err(Misrouted::ConnectMethod);
    }
    let host = host_of(head)?;
    let mut buffer = [0; MAX_HOST];
    let Authority { name, port: suffix } =
        Authority::parse(host.as_bytes(), &mut buffer).ok_or(Misrouted::InvalidHost)?;

    let name = match name {
        Name::Dns(name) if name != "localhost" => name,
        // No domain to make a sandbox's own name of.
        _ => {
            let (sandbox, port) = from_headers(&head.headers)?;
            return Ok(Target { sandbox, port, host, shared: None });
        }
    };
    let shared = |sandbox, port, domain| {
        let own = own_host(&sandbox, port, domain, suffix)?;
        Ok(Target { sandbox, port, host: host.clone(), shared: Some(own) })
    };
    let (label, domain) = name.split_once('.').unwrap_or((name, ""));
    let is_served = || rules.domains.is_empty() || rules.domains.iter().any(|suffix| is_within(domain, suffix));
    if label == "sandbox" && !domain.is_empty() {
        if rules.shared_within_domains && !is_served() {
            return Err(Misrouted::UnknownDomain);
        }
        let (sandbox, port) = from_headers(&head.headers)?;
        return shared(sandbox, port, domain);
    }
    let named = from_label(label);
    // A name of a sandbox wins even where it is listed by mistake.
    if rules.header_hosts.iter().any(|host| host == name) && !matches!(named, Ok((_, Some(_)))) {
        let (sandbox, port) = from_headers(&head.headers)?;
        return shared(sandbox, port, name);
    }
    if domain.is_empty() {
        return Err(Misrouted::InvalidHost);
    }
    if !is_served() {
        return Err(Misrouted::UnknownDomain);
    }
    match (named, rules.default_port) {
        (Ok((sandbox, Some(port))), default)
            if rules.default_port_for.as_ref() == Some(&sandbox) && default != Some(port) =>
        {
            Err(Misrouted::InvalidHost)
        }
        (Ok((sandbox, Some(port))), _) => Ok(Target { sandbox, port, host, shared: None }),
        (Ok((sandbox, None)), Some(port)) if rules.default_port_for.as_ref().is_none_or(|only| *only == sandbox) => {
            shared(sandbox, port, domain)
        }
        (Ok((_, None)), _) => Err(Misrouted::InvalidHost),
        (Err(why), _) => Err(why),
    }
}

/// The one Host of a request, or why there is not exactly one (RFC 9112 §3.2: repeated, or missing in
/// HTTP/1.1, is 400). HTTP/1.0 and HTTP/2 may do without the header where the target has an authority.
pub(crate) fn host_of(head: &Parts) -> Result<HeaderValue, Misrouted> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Misrouted::InvalidHost),
        (None, None) if head.version == Version::HTTP_11 => return Err(Misrouted::InvalidHost),
        (host, None) => host,
    };
    let Some(target) = head.uri.authority() else {
        return host.cloned().ok_or(Misrouted::InvalidHost);
    };
    // `GET name:80` is the form of CONNECT alone (RFC 9112 §3.2.3).
    if head.uri.scheme().is_none() && head.version < Version::HTTP_2 {
        return Err(Misrouted::InvalidHost);
    }
    match host {
        // The usual case costs no copy.
        Some(host) if host == target.as_str() => Ok(host.clone()),
        Some(host) if !agree(target.as_str().as_bytes(), host.as_bytes(), &head.uri) => Err(Misrouted::InvalidHost),
        _ => HeaderValue::from_str(target.as_str()).map_err(|_| Misrouted::InvalidHost),
    }
}

/// Whether a Host can mean no other machine than this: localhost, or a loopback address. A web page can point a name of
/// its own at this machine and then talk to it as to its own server (DNS rebinding); that name is none of these.
pub(crate) fn is_local(host: &[u8]) -> bool {
    match Authority::parse(host, &mut [0; MAX_HOST]).map(|authority| authority.name) {
        Some(Name::V4(ip)) => ip.is_loopback(),
        Some(Name::V6(ip)) => ip.to_canonical().is_loopback(),
        Some(Name::Dns(name)) => name == "localhost",
        None => false,
    }
}

/// Whether two authorities are the same but for case, a trailing dot, and a port that is the scheme's
/// default in one and left out in the other (RFC 9110 §4.2.3).
fn agree(target: &[u8], host: &[u8], uri: &Uri) -> bool {
    let default = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => Some("80"),
        Some(scheme) if *scheme == Scheme::HTTPS => Some("443"),
        _ => None,
    };
    let (mut left, mut right) = ([0; MAX_HOST], [0; MAX_HOST]);
    let target = Authority::parse(target, &mut left);
    let host = Authority::parse(host, &mut right);
    let (Some(target), Some(host)) = (target, host) else {
        return false;
    };
    target.name == host.name && target.port.or(default) == host.port.or(default)
}

/// `host[:port]` without user information (RFC 9110 §7.2), lower-cased, validated.
struct Authority<'a> {
    name: Name<'a>,
    /// Its digits; `None` where there is none or an empty one.
    port: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name<'a> {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    /// Labels of letters, digits, `-` and `_`, none empty, without a trailing dot.
    Dns(&'a str),
}

impl<'a> Authority<'a> {
    fn parse(text: &[u8], buffer: &'a mut [u8; MAX_HOST]) -> Option<Self> {
        let text = {
            let lowered = buffer.get_mut(..text.len())?;
            lowered.copy_from_slice(text);
            lowered.make_ascii_lowercase();
            std::str::from_utf8(lowered).ok()?
        };
        let (host, port) = match text.rsplit_once(':') {
            // The last colon of an IPv6 literal is inside its brackets.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            None | Some("") => None,
            Some(digits) => digits.parse::<Port>().is_ok().then_some(Some(digits))?,
        };
        let name = if let Some(literal) = host.strip_prefix('[') {
            Name::V6(literal.strip_suffix(']')?.parse().ok()?)
        } else {
            let host = host.strip_suffix('.').unwrap_or(host);
            // Only a name that ends in a digit can be an address.
            match host.ends_with(|last: char| last.is_ascii_digit()).then(|| host.parse()) {
                Some(Ok(ip)) => Name::V4(ip),
                _ => are_labels(host).then_some(Name::Dns(host))?,
            }
        };
        Some(Self { name, port })
    }
}

/// Whether these are labels of allowed bytes between dots, none of them empty.
fn are_labels(name: &str) -> bool {
    let mut last = b'.';
    let fits = name.bytes().all(|byte| {
        let before = std::mem::replace(&mut last, byte);
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && before != b'.')
    });
    fits && last != b'.'
}

/// Whether `domain` is `suffix` or lies below it.
fn is_within(domain: &str, suffix: &str) -> bool {
    domain.strip_suffix(suffix).is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// `{port}-{id}[-ignored]`, or `{id}` alone, whose port is `None`.
fn from_label(label: &str) -> Result<(SandboxId, Option<Port>), Misrouted> {
    let (port, id) = match label.split_once('-') {
        None => (None, label),
        Some((port, rest)) => {
            let port = port.parse().map_err(|()| Misrouted::InvalidPort)?;
            (Some(port), rest.split('-').next().unwrap_or(rest))
        }
    };
    let id = SandboxId::new(id).ok_or(Misrouted::InvalidSandboxId)?;
    Ok((id, port))
}

/// The two routing headers, each exactly once: of two values, the sandbox might believe the other.
fn from_headers(headers: &HeaderMap) -> Result<(SandboxId, Port), Misrouted> {
    let once = |name, invalid| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Err(Misrouted::MissingHeader),
            (Some(value), None) => value.to_str().map_err(|_| invalid),
            (Some(_), Some(_)) => Err(invalid),
        }
    };
    let id = once(SANDBOX_ID, Misrouted::InvalidSandboxId)?;
    let port = once(SANDBOX_PORT, Misrouted::InvalidPort)?;
    let id = SandboxId::new(id).ok_or(Misrouted::InvalidSandboxId)?;
    let port = port.parse().map_err(|()| Misrouted::InvalidPort)?;
    Ok((id, port))
}

fn own_host(sandbox: &SandboxId, port: Port, domain: &str, suffix: Option<&str>) -> Result<HeaderValue, Misrouted> {
    let text = match suffix {
        Some(suffix) => format!("{port}-{sandbox}.{domain}:{suffix}"),
        None => format!("{port}-{sandbox}.{domain}"),
    };
    HeaderValue::try_from(text).map_err(|_| Misrouted::InvalidHost)
}
