//! Who may read or write at `/files`: whoever shows the access token, or a URL signed with it, as the SDKs'
//! `download_url` and `upload_url` make them.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use ring::digest::{Context, SHA256};

use super::{Query, fault::Fault};
use crate::{dev::envd::rpc::Code, types::Secret};

#[derive(Clone, Copy)]
pub(super) enum Operation {
    Read,
    Write,
}

/// A token that is there must be the right one, whatever the signature.
pub(super) fn check(headers: &HeaderMap, query: &Query, operation: Operation, token: &Secret) -> Result<(), Fault> {
    let refused = |why: &str| Err(Fault::new(Code::Unauthenticated, why));
    match headers.get("x-access-token").map(HeaderValue::as_bytes) {
        Some(shown) if !shown.is_empty() => {
            return if token.matches(shown) {
                Ok(())
            } else {
                refused("access token present in header but does not match")
            };
        }
        _ => {}
    }
    let Some(signature) = &query.signature else {
        return refused("unauthorized: neither an access token in X-Access-Token nor a signature");
    };
    let expiration = match query.signature_expiration.as_deref().map(str::parse::<i64>) {
        None => None,
        Some(Ok(seconds)) => Some(seconds),
        Some(Err(_)) => return refused("invalid signature"),
    };
    if !Secret::new(expected(query, operation, token, expiration)).matches(signature.as_bytes()) {
        return refused("invalid signature");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if expiration.is_some_and(|end| u64::try_from(end).unwrap_or(0) < now) {
        return refused("signature is already expired");
    }
    Ok(())
}

/// `v1_`, and the SHA-256 of path, operation, user, token and end, with colons between, in base64.
fn expected(query: &Query, operation: Operation, token: &Secret, expiration: Option<i64>) -> String {
    let operation = match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let mut context = Context::new(&SHA256);
    for part in [query.path.as_deref().unwrap_or_default(), operation, query.username.as_deref().unwrap_or_default()] {
        context.update(part.as_bytes());
        context.update(b":");
    }
    context.update(token.expose());
    if let Some(seconds) = expiration {
        context.update(format!(":{seconds}").as_bytes());
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(context.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(signature: Option<&str>, expiration: Option<&str>) -> Query {
        Query {
            path: Some("/home/user/a b.txt".to_owned()),
            username: None,
            signature: signature.map(str::to_owned),
            signature_expiration: expiration.map(str::to_owned),
        }
    }

    /// What the SDK of 2.63.0 makes (`e2b.sandbox.signature.get_signature`).
    const READ: &str = "v1_uk59ovDbiF49fD21KNFgvCaU2sO+DMbPaK76sueR9bs";
    const READ_UNTIL_4000000000: &str = "v1_5d1sdnQDPW42eNb2UPfrDhyFKgtzdC33Ed3t0qjyJI8";

    #[test]
    fn signatures_are_those_of_the_sdks() {
        let token = Secret::new("tok-1");
        let headers = HeaderMap::new();
        check(&headers, &query(Some(READ), None), Operation::Read, &token).expect("signed");
        let until = query(Some(READ_UNTIL_4000000000), Some("4000000000"));
        check(&headers, &until, Operation::Read, &token).expect("signed");
        for (query, operation) in [
            (query(None, None), Operation::Read),
            (query(Some(READ), None), Operation::Write),
            (query(Some(READ), Some("4000000000")), Operation::Read),
            (query(Some(READ_UNTIL_4000000000), None), Operation::Read),
            (query(Some(READ_UNTIL_4000000000), Some("4000000001")), Operation::Read),
            (query(Some(READ_UNTIL_4000000000), Some("soon")), Operation::Read),
            (query(Some(&READ[3..]), None), Operation::Read),
            (Query { username: Some("root".to_owned()), ..query(Some(READ), None) }, Operation::Read),
            (Query { path: Some("/etc".to_owned()), ..query(Some(READ), None) }, Operation::Read),
        ] {
            assert!(check(&headers, &query, operation, &token).is_err(), "{query:?}");
        }
        let old = expected(&query(None, None), Operation::Read, &token, Some(1));
        let fault = check(&headers, &query(Some(&old), Some("1")), Operation::Read, &token).expect_err("over");
        assert_eq!(fault.message, "signature is already expired");
    }

    #[test]
    fn a_wrong_token_is_not_made_good_by_a_signature() {
        let token = Secret::new("tok-1");
        let headers = HeaderMap::from_iter([("x-access-token".parse().expect("a name"), "x".parse().expect("text"))]);
        assert!(check(&headers, &query(Some(READ), None), Operation::Read, &token).is_err());
        let headers =
            HeaderMap::from_iter([("x-access-token".parse().expect("a name"), "tok-1".parse().expect("text"))]);
        check(&headers, &query(None, None), Operation::Write, &token).expect("the token is enough");
    }
}
