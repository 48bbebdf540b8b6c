//! Protocols of calls, by the content type of their messages.

/// What a content type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rpc {
    /// "gRPC over HTTP2", Content-Type: with a subtype or without.
    Grpc,
    /// "gRPC Web", Content-Types: another protocol, whose servers speak HTTP/1.1.
    GrpcWeb,
    /// "Connect Protocol Reference", Streaming-Content-Type.
    ConnectStream,
}

impl Rpc {
    pub(crate) fn named_by(content_type: &[u8]) -> Option<Self> {
        let after = |name: &[u8]| {
            let (head, rest) = content_type.split_at_checked(name.len())?;
            head.eq_ignore_ascii_case(name).then_some(rest)
        };
        // Parameters may follow, and white space before them (RFC 9110 §8.3.1).
        let ends = |rest: &[u8]| matches!(rest, [] | [b'+' | b';' | b' ' | b'\t', ..]);
        if after(b"application/grpc").is_some_and(ends) {
            Some(Self::Grpc)
        } else if after(b"application/grpc-web").is_some_and(ends)
            || after(b"application/grpc-web-text").is_some_and(ends)
        {
            Some(Self::GrpcWeb)
        } else {
            after(b"application/connect+").map(|_| Self::ConnectStream)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_named_by_a_whole_type() {
        let (grpc, web, stream) = (Some(Rpc::Grpc), Some(Rpc::GrpcWeb), Some(Rpc::ConnectStream));
        for (content_type, want) in [
            ("application/grpc", grpc),
            ("Application/gRPC+Proto", grpc),
            ("application/grpc;charset=utf-8", grpc),
            ("application/grpc ; charset=utf-8", grpc),
            ("application/grpcfoo", None),
            ("application/grpc-foo", None),
            ("application/grpc/", None),
            ("application/grpc-web", web),
            ("application/grpc-web+json", web),
            ("application/GRPC-web-text", web),
            ("application/grpc-web-text+proto", web),
            ("application/grpc-website", None),
            ("application/grpc-web-textual", None),
            ("application/connect+json", stream),
            ("application/Connect+proto; x=1", stream),
            ("application/connect", None),
            ("application/json", None),
            ("", None),
        ] {
            assert_eq!(Rpc::named_by(content_type.as_bytes()), want, "{content_type}");
        }
    }
}
