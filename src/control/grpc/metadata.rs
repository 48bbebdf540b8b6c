//! What a call says beside its message: for which port, with whose tokens.

use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use super::token::Token;
use crate::types::{Credentials, Secret};

/// The longest token that is sent, in bytes. None that the API gave out is near it, and its server refuses a call
/// whose metadata is too large, as if it could not be reached.
const MAX_TOKEN: usize = 4096;

/// Writes a call's metadata.
pub(super) fn write(metadata: &mut MetadataMap, credentials: &Credentials, token: Option<&Token>) {
    metadata.insert("e2b-sandbox-request-port", AsciiMetadataValue::from(credentials.port.get()));
    for (name, secret) in
        [("e2b-traffic-access-token", &credentials.traffic_token), ("e2b-envd-access-token", &credentials.access_token)]
    {
        if let Some(value) = secret.as_ref().and_then(sendable) {
            metadata.insert(name, value);
        }
    }
    if let Some(token) = token {
        metadata.insert("authorization", token.bearer().clone());
    }
}

/// The token as gRPC can carry it: printable ASCII. What is none opens nothing, and is left out: a call without a
/// token is refused where a wrong one would be, while a call with such a value may not reach the API at all.
fn sendable(secret: &Secret) -> Option<AsciiMetadataValue> {
    let bytes = secret.expose();
    let fits = (1..=MAX_TOKEN).contains(&bytes.len()) && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let mut value = AsciiMetadataValue::try_from(bytes).ok().filter(|_| fits)?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Port;

    #[test]
    fn what_no_metadata_can_carry_is_left_out() {
        let long = "x".repeat(MAX_TOKEN + 1);
        for (token, sent) in [
            (&b"a token"[..], true),
            (&long.as_bytes()[1..], true),
            (long.as_bytes(), false),
            (b"", false),
            ("t\u{f6}ken".as_bytes(), false),
            (b"to\tken", false),
            (b"to\nken", false),
            (b"to\0ken", false),
            (b"\x7f", false),
            (b"\xff", false),
        ] {
            let credentials = Credentials {
                port: Port::ENVD,
                traffic_token: Some(Secret::new(token)),
                access_token: Some(Secret::new(token)),
            };
            let mut metadata = MetadataMap::new();
            write(&mut metadata, &credentials, None);
            for name in ["e2b-traffic-access-token", "e2b-envd-access-token"] {
                let value = metadata.get(name);
                assert_eq!(value.map(AsciiMetadataValue::as_bytes), sent.then_some(token));
                assert!(value.is_none_or(AsciiMetadataValue::is_sensitive));
            }
            assert_eq!(metadata.len(), if sent { 3 } else { 1 });
        }
    }
}
