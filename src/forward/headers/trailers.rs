//! Fields behind a body. Whoever merges them into the head, as RFC 9110 §6.5.1 allows for some, must not find
//! there what was taken out of it, or could not have been forged in it.

use http::{
    HeaderMap, HeaderName,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST,
        PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

use super::{
    ACCESS_TOKEN, KEEP_ALIVE, PROXY_CONNECTION, REAL_IP, REQUEST_ID, TRAFFIC_TOKEN, WAKE, marks::CLAIM,
    proxy_status::strip_our_status,
};

/// Of one connection; of the framing; what authenticates; and what this proxy itself decides on.
static FORBIDDEN: [HeaderName; 22] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    HOST,
    EXPECT,
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    SET_COOKIE,
    FORWARDED,
    REAL_IP,
    REQUEST_ID,
    TRAFFIC_TOKEN,
    ACCESS_TOKEN,
    WAKE,
];

/// Makes trailers, of a request or an answer, fit for the next hop.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    for name in &FORBIDDEN {
        trailers.remove(name);
    }
    let claims: Vec<HeaderName> = trailers.keys().filter(|name| name.as_str().starts_with(CLAIM)).cloned().collect();
    for name in claims {
        trailers.remove(name);
    }
    // RFC 9209 §2 allows it there.
    strip_our_status(trailers);
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_may_not_stand_in_a_head_may_not_follow_it_either() {
        let mut trailers = HeaderMap::new();
        let names = FORBIDDEN.iter().map(HeaderName::as_str);
        for name in names.chain(["x-forwarded-for", "x-forwarded-anything"]) {
            trailers.insert(HeaderName::from_bytes(name.as_bytes()).expect("a name"), HeaderValue::from_static("1"));
        }
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers.append("grpc-message", HeaderValue::from_static("a"));
        trailers.append("grpc-message", HeaderValue::from_static("b"));
        trailers.append("proxy-status", HeaderValue::from_static("client-proxy; error=forged, other"));
        clean_trailers(&mut trailers);
        assert_eq!(trailers.len(), 4, "{trailers:?}");
        assert_eq!(trailers["proxy-status"], "other");
    }
}
