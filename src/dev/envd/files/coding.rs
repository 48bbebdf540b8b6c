//! Bodies that come compressed: `Content-Encoding: gzip` (RFC 9110, section 8.4.1.3), as SDKs send it on
//! request. Unpacked as they come, a little at a time: what a few bytes become may be a thousand times longer.

use std::io::{self, Write as _};

use axum::{
    body::Body,
    extract::Request,
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use futures_util::{Stream, StreamExt as _, stream};

use super::fault::Fault;

/// What is unpacked at once; it becomes four mebibytes at most.
const PIECE: usize = 4 * 1024;

/// The request with its body as it was before it was compressed.
pub(super) fn unpacked(mut request: Request) -> Result<Request, Fault> {
    let coding = request.headers_mut().remove(CONTENT_ENCODING);
    let coding = coding.as_ref().map(|coding| coding.as_bytes().trim_ascii().to_ascii_lowercase());
    match coding.as_deref() {
        None | Some(b"" | b"identity") => Ok(request),
        Some(b"gzip" | b"x-gzip") => {
            request.headers_mut().remove(CONTENT_LENGTH);
            let packed = |body: Body| body.into_data_stream().map(|chunk| chunk.map_err(io::Error::other));
            Ok(request.map(|body| Body::from_stream(gunzip(packed(body)))))
        }
        Some(_) => Err(Fault::invalid("unsupported Content-Encoding, supported: gzip")),
    }
}

struct Unpacking<S> {
    packed: S,
    piece: Bytes,
    decoder: MultiGzDecoder<Vec<u8>>,
}

/// Ends with an error where the compressed form is broken or not whole.
fn gunzip(packed: impl Stream<Item = io::Result<Bytes>> + Unpin) -> impl Stream<Item = io::Result<Bytes>> {
    let begin = Unpacking { packed, piece: Bytes::new(), decoder: MultiGzDecoder::new(Vec::new()) };
    stream::try_unfold(Some(begin), async |unpacking| {
        let Some(mut unpacking) = unpacking else {
            return Ok(None);
        };
        loop {
            let Unpacking { packed, piece, decoder } = &mut unpacking;
            if piece.is_empty() {
                let Some(chunk) = packed.next().await else {
                    decoder.try_finish()?;
                    let last = std::mem::take(decoder.get_mut());
                    return Ok((!last.is_empty()).then(|| (last.into(), None)));
                };
                *piece = chunk?;
                continue;
            }
            decoder.write_all(&piece.split_to(piece.len().min(PIECE)))?;
            let plain = std::mem::take(decoder.get_mut());
            if !plain.is_empty() {
                return Ok(Some((plain.into(), Some(unpacking))));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use futures_util::TryStreamExt as _;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("packed");
        encoder.finish().expect("packed")
    }

    async fn unpack(packed: &[u8], chunk: usize) -> io::Result<(Vec<u8>, usize)> {
        let chunks = packed.chunks(chunk).map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let plain: Vec<Bytes> = Box::pin(gunzip(stream::iter(chunks))).try_collect().await?;
        Ok((plain.concat(), plain.iter().map(Bytes::len).max().unwrap_or_default()))
    }

    #[tokio::test]
    async fn what_was_packed_comes_out_again_in_bounded_pieces() {
        let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for chunk in [1, 7, 5000, 1 << 20] {
            assert!(unpack(&packed(&text), chunk).await.expect("unpacked").0 == text, "{chunk}");
        }
        assert!(unpack(&packed(b""), 3).await.expect("unpacked").0.is_empty());
        let twice = [packed(b"one "), packed(b"two")].concat();
        assert_eq!(unpack(&twice, 3).await.expect("unpacked").0, b"one two");
        let bomb = packed(&vec![0; 64 << 20]);
        let (plain, longest) = unpack(&bomb, bomb.len()).await.expect("unpacked");
        assert_eq!(plain.len(), 64 << 20);
        assert!(longest <= 5 << 20, "{longest}");
    }

    #[tokio::test]
    async fn broken_and_short_ones_are_errors() {
        let whole = packed(b"some text, and some more of it");
        for bad in [&whole[..whole.len() - 3], &whole[..12], b"plain", &[&whole[..20], b"xxxxxxxxxxxxxxxx"].concat()] {
            assert!(unpack(bad, 4).await.is_err(), "{bad:?}");
        }
    }
}
