//! How a request's body is coded for the transfer.

use http::{HeaderMap, HeaderValue, header::TRANSFER_ENCODING};

use super::Marks;

/// Why nobody here can tell what the body is. hyper takes any list whose last member is `chunked`, and removes
/// that coding only; but the field is of one connection, and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCoding {
    /// RFC 9112 §6.1: 501.
    #[error("a transfer coding that is not known here")]
    Unknown,
    /// RFC 9112 §6.1: `chunked` is applied once.
    #[error("a list of transfer codings that is malformed")]
    Repeated,
}

/// Whether a request's body has at most the one coding that is undone here.
pub(crate) fn one_coding(headers: &HeaderMap, marks: Marks) -> Result<(), BadCoding> {
    if !marks.has(Marks::TRANSFER_ENCODING) {
        return Ok(());
    }
    let values = || headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let mut each = values();
    if each.next().is_some_and(is_chunked) && each.next().is_none() {
        return Ok(());
    }
    let members = || values().flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let known = members().all(|coding| coding.is_empty() || is_chunked(coding));
    Err(if known { BadCoding::Repeated } else { BadCoding::Unknown })
}

fn is_chunked(coding: &[u8]) -> bool {
    coding.eq_ignore_ascii_case(b"chunked")
}
