//! Kinds of values that only control planes have.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{base_url, masked};
use crate::{
    config::{
        RedisUrl,
        fault::{MASK, Wrong},
    },
    types::{Node, Port, Secret},
};

const REDIS: &str = "write such as \"redis://10.0.0.5:6379\" or \"rediss://user:password@host:6379/0\"";

/// A Redis server: `redis[s]://[user][:password]@host[:port][/database]`.
pub(crate) fn redis(text: &str) -> Result<RedisUrl, Wrong> {
    let url = Url::parse(text).map_err(|error| Wrong::new(format!("not a URL: {error}"), REDIS))?;
    let tls = match url.scheme() {
        "redis" => false,
        "rediss" => true,
        _ => return Err(Wrong::new("not a redis or rediss URL", REDIS)),
    };
    let host = url.host_str().and_then(Node::new);
    let host = host.ok_or_else(|| Wrong::new("it names no host", REDIS))?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Wrong::new("it has a part that nobody reads", "leave out what begins with ? or #"));
    }
    if [Some(url.username()), url.password()].contains(&Some(MASK)) {
        return Err(masked());
    }
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| Wrong::new("user or password is not UTF-8 text", "write text"))
    };
    let database = match url.path().trim_start_matches('/') {
        "" => 0,
        path => path.parse().map_err(|_| Wrong::new("its path is no database's number", REDIS))?,
    };
    if url.port() == Some(0) {
        return Err(Wrong::new("its port is not one of 1 to 65535", REDIS));
    }
    Ok(RedisUrl {
        host: host.as_str().trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(6379),
        tls,
        user: Some(decoded(url.username())?).filter(|user| !user.is_empty()),
        password: url.password().map(decoded).transpose()?.map(Secret::new),
        database,
    })
}

/// Certificates in PEM, in Base64 (RFC 4648 §4); empty is none.
pub(crate) fn authorities(text: &str) -> Result<Option<Vec<u8>>, Wrong> {
    let text: String = text.split_ascii_whitespace().collect();
    if text.is_empty() {
        return Ok(None);
    }
    let remedy = "write what `base64 -w0 ca.pem` prints";
    let pem = STANDARD.decode(text).map_err(|_| Wrong::new("not Base64", remedy))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(Some(pem)),
        _ => Err(Wrong::new("it holds no certificate in PEM", remedy)),
    }
}

/// `host:port`.
pub(crate) fn authority(text: &str) -> Result<String, Wrong> {
    let example = "write such as \"127.0.0.1:5009\" or \"api.internal:5009\"";
    if text.contains("://") {
        return Err(Wrong::new("an address, not a URL", "leave out the scheme; tls says whether over TLS"));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| Wrong::new("has no port", example))?;
    if port.parse::<Port>().is_err() {
        return Err(Wrong::new("its port is not one of 1 to 65535", example));
    }
    let bare_ipv6 = host.contains(':') && !host.starts_with('[');
    let node = Node::new(host).filter(|_| !bare_ipv6);
    node.map(|node| format!("{node}:{port}")).ok_or_else(|| Wrong::new("not a host and port", example))
}

/// A name of visible ASCII characters; empty is none.
pub(crate) fn visible(text: &str) -> Result<Option<String>, Wrong> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(Some(text.to_owned()).filter(|text| !text.is_empty()));
    }
    Err(Wrong::new("it has a space or another character that is not visible ASCII", "write visible ASCII characters"))
}

/// The endpoint that gives tokens, or none.
pub(crate) fn token_url(text: &str) -> Result<Option<Url>, Wrong> {
    match text {
        "" => Ok(None),
        text => base_url(text, "write such as \"https://auth.example.com/oauth/token\"").map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_url_is_taken_apart() {
        let url = redis("rediss://us%65r:p%40ss%2f@[::1]:6380/3").unwrap_or_else(|wrong| panic!("{}", wrong.wrong));
        assert_eq!((url.host.as_str(), url.port, url.tls, url.database), ("::1", 6380, true, 3));
        assert_eq!(url.user.as_deref(), Some("user"));
        assert!(url.password.is_some_and(|password| password.matches(b"p@ss/")));
        let url = redis("redis://:pw@cache").unwrap_or_else(|wrong| panic!("{}", wrong.wrong));
        assert_eq!((url.host.as_str(), url.port, url.tls, url.user, url.database), ("cache", 6379, false, None, 0));
        for bad in [
            "",
            "cache:6379",
            "http://cache",
            "redis://",
            "redis://a/x",
            "redis://a?x=1",
            "redis://:***@a",
            "redis://a/-1",
        ] {
            assert!(redis(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_authority_has_a_host_and_a_port() {
        for (text, want) in [("API.internal:5009", Some("api.internal:5009")), ("[::1]:1", Some("[::1]:1"))] {
            assert_eq!(authority(text).ok().as_deref(), want, "{text}");
        }
        for bad in ["", "a", "a:0", "::1:5009", "a b:1", "http://a:1", "a:65536"] {
            assert!(authority(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn authorities_are_certificates() {
        assert!(matches!(authorities(" "), Ok(None)));
        for bad in ["!", "aGVsbG8="] {
            assert!(authorities(bad).is_err(), "{bad}");
        }
    }
}
