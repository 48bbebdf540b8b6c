//! Which fields a head has, of those that matter here.

use http::HeaderMap;

/// Which of the fields that this proxy cares for a head has: found in one walk, where a search for each
/// would cost more than all else that is done to a head.
#[derive(Clone, Copy)]
pub(crate) struct Marks(u16);

impl Marks {
    pub(super) const CONNECTION: u16 = 1;
    /// Other fields of one connection only.
    pub(super) const HOP_BY_HOP: u16 = 1 << 1;
    pub(super) const TE: u16 = 1 << 2;
    pub(super) const TRANSFER_ENCODING: u16 = 1 << 3;
    pub(super) const CONTENT_LENGTH: u16 = 1 << 4;
    pub(super) const FORWARDING: u16 = 1 << 5;
    pub(super) const PROXY_STATUS: u16 = 1 << 6;
    pub(super) const WAKE: u16 = 1 << 7;
    pub(super) const TOKEN: u16 = 1 << 8;
    const REQUEST_ID: u16 = 1 << 9;
    const USER_AGENT: u16 = 1 << 10;
    /// A length that is repeated, or more than a number, or one that begins with zeros.
    pub(super) const ODD_LENGTH: u16 = 1 << 11;
    const GRPC: u16 = 1 << 12;

    /// As if every one were there.
    #[cfg(test)]
    pub(super) const ALL: Self = Self(u16::MAX);

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        // Of a repeated name all values are walked over.
        Self(headers.iter().fold(0, |marks, (name, value)| match Self::one(name.as_str()) {
            Self::CONTENT_LENGTH if marks & Self::CONTENT_LENGTH != 0 || !is_plain_number(value.as_bytes()) => {
                marks | Self::CONTENT_LENGTH | Self::ODD_LENGTH
            }
            Self::GRPC if !is_grpc(value.as_bytes()) => marks,
            mark => marks | mark,
        }))
    }

    fn one(name: &str) -> u16 {
        match name {
            "connection" => Self::CONNECTION,
            "keep-alive" | "proxy-connection" | "upgrade" => Self::HOP_BY_HOP,
            "te" => Self::TE,
            "transfer-encoding" => Self::TRANSFER_ENCODING,
            "content-length" => Self::CONTENT_LENGTH,
            "content-type" => Self::GRPC,
            "forwarded" | "x-real-ip" => Self::FORWARDING,
            "proxy-status" => Self::PROXY_STATUS,
            "x-sandbox-wake" => Self::WAKE,
            "x-request-id" => Self::REQUEST_ID,
            "user-agent" => Self::USER_AGENT,
            "e2b-traffic-access-token" | "x-access-token" => Self::TOKEN,
            // Any of them, also those nobody has thought of yet.
            name if name.starts_with(CLAIM) => Self::FORWARDING,
            _ => 0,
        }
    }

    pub(super) fn has(self, mark: u16) -> bool {
        self.0 & mark != 0
    }

    /// Whether it brings an `X-Request-Id`.
    pub(crate) fn has_request_id(self) -> bool {
        self.has(Self::REQUEST_ID)
    }

    /// Whether it names the program that asks.
    pub(crate) fn has_user_agent(self) -> bool {
        self.has(Self::USER_AGENT)
    }

    /// Whether it is one of gRPC's own.
    pub(crate) fn is_grpc(self) -> bool {
        self.has(Self::GRPC)
    }

    /// Whether it brings a token.
    pub(crate) fn has_token(self) -> bool {
        self.has(Self::TOKEN)
    }
}

/// `application/grpc`, with whatever encoding of messages. Not gRPC-Web, which is another protocol: its servers
/// speak HTTP/1.1.
fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let Some((begin, rest)) = content_type.split_at_checked(GRPC.len()) else { return false };
    begin.eq_ignore_ascii_case(GRPC) && rest.first() != Some(&b'-')
}

fn is_plain_number(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit) && (value.len() == 1 || !value.starts_with(b"0"))
}

/// How forwarding fields begin that only a trusted peer may send.
pub(super) const CLAIM: &str = "x-forwarded-";
