//! A client that wants to speak another protocol from here on: by `Upgrade` (RFC 9110 §7.8), or by extended
//! CONNECT over HTTP/2 (RFC 8441), which becomes an `Upgrade` towards the sandbox.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
    header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE},
    request::Parts,
};
use hyper::ext::Protocol;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::{Marks, lists};

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Upgrade {
    /// What goes upstream in `Upgrade`: one or more protocols.
    protocols: HeaderValue,
    /// What the sandbox must answer to a WebSocket handshake that is ours; `None` where it is the client's.
    accept: Option<HeaderValue>,
}

/// An extended CONNECT for a protocol that cannot be bridged.
#[derive(Debug, thiserror::Error)]
#[error("not a protocol that can be bridged")]
pub(crate) struct UnknownProtocol;

/// RFC 6455 §1.3
const WEBSOCKET_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
/// Also where the client spoke HTTP/2, and had no need of it.
const WEBSOCKET_VERSION: HeaderName = http::header::SEC_WEBSOCKET_VERSION;

impl Upgrade {
    /// What a request asks for; an extended CONNECT becomes the GET that it is at the sandbox.
    ///
    /// Ignored, as any server may (RFC 9110 §7.8), where the request has a body: its end would have to be found
    /// before the protocol changes. HTTP/2 is never one to switch to (RFC 9113 §3.1): a tunnel for it would carry
    /// requests that nobody looked at.
    pub(crate) fn wanted(head: &mut Parts, marks: Marks, has_body: bool) -> Result<Option<Self>, UnknownProtocol> {
        if head.version == Version::HTTP_2 {
            let Some(protocol) = head.extensions.get::<Protocol>() else { return Ok(None) };
            if protocol.as_str() != "websocket" {
                return Err(UnknownProtocol);
            }
            return Ok(Some(Self::bridged(head)));
        }
        let names_it = || head.headers.get_all(CONNECTION).iter().any(|value| lists(value, "upgrade"));
        if head.version != Version::HTTP_11 || has_body || !marks.has(Marks::HOP_BY_HOP) || !names_it() {
            return Ok(None);
        }
        let asked = head.headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
        let asked = asked.flat_map(|value| value.split(',')).map(str::trim);
        let protocols: Vec<_> = asked.filter(|name| !name.is_empty() && !is_http2(name)).collect();
        let protocols = HeaderValue::try_from(protocols.join(", ")).ok().filter(|value| !value.is_empty());
        Ok(protocols.map(|protocols| Self { protocols, accept: None }))
    }

    fn bridged(head: &mut Parts) -> Self {
        head.method = Method::GET;
        let key = STANDARD.encode(fastrand::u128(..).to_be_bytes());
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{WEBSOCKET_GUID}").as_bytes());
        let value = |text: String| HeaderValue::try_from(text).unwrap_or(WEBSOCKET);
        let accept = value(STANDARD.encode(digest));
        head.headers.insert(SEC_WEBSOCKET_KEY, value(key));
        head.headers.entry(WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        Self { protocols: WEBSOCKET, accept: Some(accept) }
    }

    /// Asks the sandbox. The fields are of one connection, and go with it (RFC 9110 §7.8).
    pub(crate) fn ask(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, self.protocols.clone());
    }

    /// What comes of it by the sandbox's answer: a switch, or an answer like any other.
    pub(crate) fn agreed(&self, answer: &http::response::Parts) -> Result<Option<Switched>, Disagreement> {
        let bridged = self.accept.is_some();
        if answer.status != StatusCode::SWITCHING_PROTOCOLS {
            // To whoever asked by CONNECT, a 2xx would say that it may begin.
            return if bridged && answer.status.is_success() { Err(Disagreement) } else { Ok(None) };
        }
        let chosen = answer.headers.get(UPGRADE).ok_or(Disagreement)?;
        let was_asked = chosen.to_str().is_ok_and(|name| lists(&self.protocols, name));
        let is_ours = || answer.headers.get(SEC_WEBSOCKET_ACCEPT) == self.accept.as_ref();
        if !was_asked || (bridged && !is_ours()) {
            return Err(Disagreement);
        }
        Ok(Some(Switched { chosen: chosen.clone(), bridged }))
    }
}

/// The sandbox answered what nobody had asked for.
#[derive(Debug)]
pub(crate) struct Disagreement;

/// A protocol that both sides speak from here on.
pub(crate) struct Switched {
    chosen: HeaderValue,
    bridged: bool,
}

impl Switched {
    /// Finishes the head for the client, after all that is of one connection was removed.
    pub(crate) fn tell(self, head: &mut http::response::Parts) {
        if self.bridged {
            // RFC 8441 §5: the end of the handshake is the status, and there is no key to answer.
            head.status = StatusCode::OK;
            head.headers.remove(SEC_WEBSOCKET_ACCEPT);
        } else {
            head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            head.headers.insert(UPGRADE, self.chosen);
        }
    }
}

/// `h2c`, or HTTP with any version.
fn is_http2(name: &str) -> bool {
    let product = name.split('/').next().unwrap_or_default();
    ["h2c", "h2", "http"].iter().any(|http2| product.eq_ignore_ascii_case(http2))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};

    use super::*;

    fn wanted(version: Version, fields: &[(&str, &str)], has_body: bool) -> Option<Upgrade> {
        let mut request = Request::builder().version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut head, ()) = request.body(()).expect("a request").into_parts();
        let marks = Marks::of(&head.headers);
        Upgrade::wanted(&mut head, marks, has_body).expect("no extended CONNECT")
    }

    #[test]
    fn only_a_whole_request_for_another_protocol_is_one() {
        let asked = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let upgrade = wanted(Version::HTTP_11, &asked, false).expect("an upgrade");
        assert_eq!(upgrade.protocols, "websocket");
        assert!(wanted(Version::HTTP_11, &asked, true).is_none(), "it has a body");
        assert!(wanted(Version::HTTP_10, &asked, false).is_none(), "RFC 9110 §7.8: ignored");
        assert!(wanted(Version::HTTP_11, &asked[1..], false).is_none(), "not nominated");
        assert!(wanted(Version::HTTP_11, &asked[..1], false).is_none(), "for nothing");
    }

    #[test]
    fn no_tunnel_is_made_for_http() {
        for (asked, left) in [
            ("h2c", None),
            ("H2C, HTTP/2.0", None),
            ("h2c, websocket", Some("websocket")),
            ("foo/2 , h2c,, bar", Some("foo/2, bar")),
        ] {
            let upgrade = wanted(Version::HTTP_11, &[("connection", "upgrade"), ("upgrade", asked)], false);
            assert_eq!(upgrade.map(|upgrade| upgrade.protocols).as_ref().and_then(|value| value.to_str().ok()), left);
        }
    }

    fn answer(status: u16, fields: &[(&str, &str)]) -> http::response::Parts {
        let mut answer = Response::builder().status(status);
        for (name, value) in fields {
            answer = answer.header(*name, *value);
        }
        answer.body(()).expect("an answer").into_parts().0
    }

    #[test]
    fn an_answer_must_be_one_to_what_was_asked() {
        let asked = [("connection", "upgrade"), ("upgrade", "foo/2, websocket")];
        let upgrade = wanted(Version::HTTP_11, &asked, false).expect("an upgrade");
        for (status, chosen, switches) in [(101, "WebSocket", true), (101, "foo/2", true), (200, "foo/2", false)] {
            let agreed = upgrade.agreed(&answer(status, &[("upgrade", chosen)])).expect("no disagreement");
            assert_eq!(agreed.is_some(), switches, "{status} {chosen}");
        }
        assert!(upgrade.agreed(&answer(101, &[("upgrade", "bar")])).is_err());
        assert!(upgrade.agreed(&answer(101, &[])).is_err());
    }

    #[test]
    fn a_bridged_handshake_is_checked_by_this_proxy() {
        let (mut head, ()) = Request::builder().method(Method::CONNECT).uri("a:1").body(()).expect("one").into_parts();
        let upgrade = Upgrade::bridged(&mut head);
        assert_eq!((&head.method, head.headers["sec-websocket-version"].as_bytes()), (&Method::GET, &b"13"[..]));
        let right = upgrade.accept.as_ref().and_then(|value| value.to_str().ok()).expect("a digest");
        let mut told = answer(101, &[("upgrade", "websocket"), ("sec-websocket-accept", right)]);
        upgrade.agreed(&told).expect("no disagreement").expect("a switch").tell(&mut told);
        assert!(told.status == 200 && !told.headers.contains_key("sec-websocket-accept"));
        let wrong = [("upgrade", "websocket"), ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")];
        assert!(upgrade.agreed(&answer(101, &wrong)).is_err());
        assert!(upgrade.agreed(&answer(200, &[])).is_err(), "it would say that the tunnel stands");
        assert!(upgrade.agreed(&answer(403, &[])).is_ok_and(|switched| switched.is_none()));
    }
}
