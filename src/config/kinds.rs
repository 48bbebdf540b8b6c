//! What the strings of a configuration mean: one function per kind of value, pure.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use reqwest::Url;

use super::{
    AddressPart, AddressTemplate, PathRule,
    fault::{MASK, Wrong, without_credentials},
};
use crate::types::{Node, Port, SandboxId, Secret};

pub(crate) use self::control::{authorities, authority, redis, token_url, visible};

mod control;

/// Far beyond any use, and far from where adding to a clock overflows.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A text as a value of TOML; what may be a password in a URL is masked.
pub(crate) fn toml(text: &str) -> String {
    toml::Value::String(without_credentials(text)).to_string()
}

/// `1h30m`, `250ms`, `0s`.
pub(crate) fn duration(text: &str) -> Result<Duration, Wrong> {
    let bad =
        || Wrong::new("not a duration", "write a number and its unit (ms, s, m, h, d), such as \"30s\" or \"1h30m\"");
    let mut rest = text;
    let mut millis = 0_u64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            _ => return Err(bad()),
        };
        if number.is_empty() {
            return Err(bad());
        }
        millis = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit)?.checked_add(millis))
            .filter(|millis| u128::from(*millis) <= LONGEST.as_millis())
            .ok_or_else(|| Wrong::new("too long", "write at most \"365d\""))?;
        if after.is_empty() {
            return Ok(Duration::from_millis(millis));
        }
        rest = after;
    }
}

/// A duration that is not zero.
pub(crate) fn positive(text: &str) -> Result<Duration, Wrong> {
    match duration(text)? {
        Duration::ZERO => Err(Wrong::new("must not be zero", "write at least \"1ms\"")),
        duration => Ok(duration),
    }
}

/// A duration that is not zero, or `off`.
pub(crate) fn positive_or_off(text: &str) -> Result<Option<Duration>, Wrong> {
    if text == "off" {
        return Ok(None);
    }
    let also = |mut wrong: Wrong| {
        wrong.remedy.push_str(", or \"off\"");
        wrong
    };
    positive(text).map(Some).map_err(also)
}

/// How long a woken sandbox lives. The API counts whole seconds, and E2B never goes below 300.
pub(crate) fn time_to_live(text: &str) -> Result<Duration, Wrong> {
    let duration = duration(text)?;
    if duration < Duration::from_mins(5) {
        return Err(Wrong::new("too short", "write at least \"300s\""));
    }
    if duration.subsec_nanos() != 0 {
        let remedy = format!("write \"{}s\"", duration.as_secs());
        return Err(Wrong::new("the API counts whole seconds", remedy));
    }
    Ok(duration)
}

/// Where to listen. Names are not looked up.
pub(crate) fn socket(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse()
        .map_err(|_| Wrong::new("not an IP address and port", "write such as \"0.0.0.0:3002\" or \"[::]:3002\""))
}

/// The same, or nowhere.
pub(crate) fn socket_or_off(text: &str) -> Result<Option<SocketAddr>, Wrong> {
    match text {
        "" => Ok(None),
        text => socket(text).map(Some).map_err(|mut wrong| {
            wrong.remedy.push_str(", or \"\" for none");
            wrong
        }),
    }
}

/// A network.
pub(crate) fn network(text: &str) -> Result<IpNet, Wrong> {
    if let Ok(ip) = text.parse::<std::net::IpAddr>() {
        let remedy = format!("write \"{}\" for this one address", IpNet::from(ip));
        return Err(Wrong::new("an address, not a network", remedy));
    }
    let bad = |_| Wrong::new("not a network", "write such as \"10.0.0.0/8\" or \"fd00::/8\"");
    text.parse::<IpNet>().map(|net| net.trunc()).map_err(bad)
}

/// A DNS name, lower-cased.
pub(crate) fn domain(text: &str) -> Result<String, Wrong> {
    let name = text.to_ascii_lowercase();
    if is_name(&name) {
        return Ok(name);
    }
    // What people write instead: a URL, a port, a wildcard, a dot at either end.
    let bare = name.split_once("://").map_or(name.as_str(), |(_, rest)| rest);
    let bare = bare.split([':', '/']).next().unwrap_or_default();
    let bare = bare.trim_start_matches('*').trim_matches('.');
    let remedy = match bare {
        bare if is_name(bare) => format!("write {bare:?}"),
        _ if name.is_ascii() => "write such as \"example.com\"".to_owned(),
        _ => "write it in its ASCII form (xn--…)".to_owned(),
    };
    Err(Wrong::new("not a domain name", remedy))
}

/// The base address of an API.
pub(crate) fn url(text: &str) -> Result<Url, Wrong> {
    base_url(text, "write such as \"http://127.0.0.1:3000\"")
}

/// The address of a collector, or none.
pub(crate) fn url_or_off(text: &str) -> Result<Option<Url>, Wrong> {
    match text {
        "" | "off" => Ok(None),
        text => base_url(text, "write such as \"http://127.0.0.1:4317\", or \"off\"").map(Some),
    }
}

fn base_url(text: &str, example: &str) -> Result<Url, Wrong> {
    let url = Url::parse(text).map_err(|error| Wrong::new(format!("not a URL: {error}"), example))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Wrong::new("not an http or https URL", example));
    }
    if url.query().is_some() || url.fragment().is_some() {
        let wrong = "a base URL has no query and no fragment";
        return Err(Wrong::new(wrong, "leave out what begins with ? or #"));
    }
    if url.username() == MASK {
        return Err(masked());
    }
    Ok(url)
}

/// A path that does not wake.
pub(crate) fn path_rule(text: &str) -> Result<PathRule, Wrong> {
    let example = "write such as \"/favicon.ico\", or \"/.well-known/*\" for all that begin so";
    if !text.starts_with('/') {
        return Err(Wrong::new("not a path", example));
    }
    if text.contains(['?', '#']) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Wrong::new("a path as it is sent has no query, no space and only ASCII", example));
    }
    match text.split_once('*') {
        None => Ok(PathRule::Exactly(text.to_owned())),
        Some((beginning, "")) => Ok(PathRule::Beginning(beginning.to_owned())),
        Some(_) => Err(Wrong::new("a * stands at the end only", example)),
    }
}

/// Part of a `User-Agent`; upper and lower case are the same.
pub(crate) fn words(text: &str) -> Result<String, Wrong> {
    match text.trim() {
        "" => Err(Wrong::new("it stands in every text", "write such as \"UptimeRobot\"")),
        words => Ok(words.to_ascii_lowercase()),
    }
}

/// A JSON pointer (RFC 6901); empty: the answers name no node.
pub(crate) fn pointer(text: &str) -> Result<String, Wrong> {
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    if (text.is_empty() || text.starts_with('/')) && escapes {
        return Ok(text.to_owned());
    }
    let remedy = "write such as \"/nodeIP\", with ~0 for ~ and ~1 for / in a name";
    Err(Wrong::new("not a JSON pointer (RFC 6901)", remedy))
}

/// A filter of `tracing_subscriber`.
pub(crate) fn filter(text: &str) -> Result<String, Wrong> {
    match tracing_subscriber::EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(Wrong::new(
            format!("not a log filter: {error}"),
            "write such as \"info\" or \"info,client_proxy=debug\"",
        )),
    }
}

/// A secret that travels in a header; empty is none.
pub(crate) fn secret(text: &str, required: bool) -> Result<Option<Secret>, Wrong> {
    if text == MASK {
        return Err(masked());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let wrong = "it has a space, a line end or another character that no header may carry";
        return Err(Wrong::new(wrong, "write visible ASCII characters only"));
    }
    match (text, required) {
        ("", true) => Err(Wrong::new("must not be empty", "write the key")),
        ("", false) => Ok(None),
        (text, _) => Ok(Some(Secret::new(text))),
    }
}

/// A sandbox and the node that runs it.
pub(crate) fn placement(id: &str, node: &str) -> Result<(SandboxId, Node), Wrong> {
    let Some(id) = SandboxId::new(id) else {
        let remedy = "write lower-case letters and digits, at most 63";
        return Err(Wrong::new("the key is not a sandbox id", remedy));
    };
    let Some(node) = Node::new(node) else {
        let wrong = "not a host";
        let remedy = "write an IP address or a name, without scheme and port";
        return Err(Wrong::new(wrong, remedy));
    };
    Ok((id, node))
}

/// The address to dial, with placeholders.
pub(crate) fn address(text: &str) -> Result<AddressTemplate, Wrong> {
    let parts = parts(text)?;
    let example = "write such as \"{node}:5007\" or \"{node}:{port}\"";
    // What an address made of it looks like: no placeholder stands for anything but one name or port.
    let mut sample = String::new();
    for part in &parts {
        sample.push_str(match part {
            AddressPart::Text(text) => text,
            AddressPart::Port => "80",
            AddressPart::Node | AddressPart::Sandbox => "x",
        });
    }
    let ends_in_port = match parts.as_slice() {
        [.., AddressPart::Text(text)] => text.contains(':'),
        [.., AddressPart::Text(text), AddressPart::Port] => text.ends_with(':'),
        _ => false,
    };
    let Some((host, port)) = sample.rsplit_once(':').filter(|_| ends_in_port) else {
        return Err(Wrong::new("has no port", example));
    };
    if port.parse::<Port>().is_err() {
        return Err(Wrong::new("its port is not one of 1 to 65535", example));
    }
    let brackets = host.starts_with('[') && host.ends_with(']');
    let bare_ipv6 = host.contains(':') && !brackets;
    if bare_ipv6 || host.contains(char::is_whitespace) || Node::new(host).is_none() {
        return Err(Wrong::new("not a host and port", example));
    }
    Ok(AddressTemplate { parts })
}

fn parts(text: &str) -> Result<Vec<AddressPart>, Wrong> {
    let known = "the placeholders are {node}, {port} and {sandbox}";
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        if !before.is_empty() {
            parts.push(AddressPart::Text(before.to_owned()));
        }
        let Some((name, after)) = after.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            return Err(Wrong::new("a brace without its other", known));
        };
        parts.push(match name {
            "node" => AddressPart::Node,
            "port" => AddressPart::Port,
            "sandbox" => AddressPart::Sandbox,
            name => {
                let wrong = format!("there is no placeholder {:?}", format!("{{{name}}}"));
                return Err(Wrong::new(wrong, known));
            }
        });
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(AddressPart::Text(rest.to_owned()));
    }
    Ok(parts)
}

fn is_name(text: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(part)
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn masked() -> Wrong {
    Wrong::new("this is a mask, not the secret", "write the secret itself")
}
