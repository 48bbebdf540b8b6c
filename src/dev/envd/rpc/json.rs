//! Protobuf's JSON where serde's differs (protobuf.dev/programming-guides/json): bytes are base64, 64-bit
//! numbers are strings.

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const PLAIN: GeneralPurpose = GeneralPurpose::new(&STANDARD, ANY_PADDING);
const FOR_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, ANY_PADDING);

/// `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Bytes);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(&self.0, &PLAIN))
    }
}

impl<'de> Deserialize<'de> for Blob {
    /// Either alphabet, with padding or without.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let engine = if text.contains(['-', '_']) { &FOR_URLS } else { &PLAIN };
        engine.decode(text.as_bytes()).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// `int64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int64(pub(crate) i64);

impl Serialize for Int64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_of_either_alphabet() {
        let blob = Blob(Bytes::from_static(b"\xfb\xff\xfe?"));
        assert_eq!(serde_json::to_string(&blob).expect("JSON"), r#""+//+Pw==""#);
        for text in [r#""+//+Pw==""#, r#""+//+Pw""#, r#""-__-Pw==""#, r#""-__-Pw""#, r#""\u002b//+Pw""#] {
            assert_eq!(serde_json::from_str::<Blob>(text).expect(text), blob, "{text}");
        }
        for text in [r#""*""#, "1", "null"] {
            assert!(serde_json::from_str::<Blob>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn long_numbers_are_strings() {
        assert_eq!(serde_json::to_string(&Int64(-5)).expect("JSON"), r#""-5""#);
    }
}
