//! Which fields a head has, of those that matter here.

use http::{HeaderMap, HeaderValue, header::ACCEPT};

use super::rpc::Rpc;

/// Which of the fields that this proxy cares for a head has: found in one walk, where a search for each
/// would cost more than all else that is done to a head.
#[derive(Clone, Copy)]
pub(crate) struct Marks(u32);

impl Marks {
    pub(super) const CONNECTION: u32 = 1;
    /// Other fields of one connection only.
    pub(super) const HOP_BY_HOP: u32 = 1 << 1;
    pub(super) const TE: u32 = 1 << 2;
    pub(super) const TRANSFER_ENCODING: u32 = 1 << 3;
    pub(super) const CONTENT_LENGTH: u32 = 1 << 4;
    pub(super) const FORWARDING: u32 = 1 << 5;
    pub(super) const PROXY_STATUS: u32 = 1 << 6;
    pub(super) const WAKE: u32 = 1 << 7;
    pub(super) const TOKEN: u32 = 1 << 8;
    const REQUEST_ID: u32 = 1 << 9;
    const USER_AGENT: u32 = 1 << 10;
    /// A length that is repeated, or more than a number, or one that begins with zeros.
    pub(super) const ODD_LENGTH: u32 = 1 << 11;
    const GRPC: u32 = 1 << 12;
    /// A content type of Connect's streams, or of gRPC-Web; or the version of Connect's protocol.
    const RPC: u32 = 1 << 13;
    /// What tells a browser's navigation from its scripts.
    const BROWSER: u32 = 1 << 14;
    const ORIGIN: u32 = 1 << 15;
    /// How long the caller waits.
    const TIMEOUT: u32 = 1 << 16;

    /// As if every one were there.
    #[cfg(test)]
    pub(super) const ALL: Self = Self(u32::MAX);

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        // Of a repeated name all values are walked over.
        Self(headers.iter().fold(0, |marks, (name, value)| match Self::one(name.as_str()) {
            Self::CONTENT_LENGTH if marks & Self::CONTENT_LENGTH != 0 || !is_plain_number(value.as_bytes()) => {
                marks | Self::CONTENT_LENGTH | Self::ODD_LENGTH
            }
            Self::GRPC => match Rpc::named_by(value.as_bytes()) {
                Some(Rpc::Grpc) => marks | Self::GRPC,
                Some(Rpc::GrpcWeb | Rpc::ConnectStream) => marks | Self::RPC,
                None => marks,
            },
            Self::BROWSER if name == ACCEPT && !accepts_html(value) => marks,
            mark => marks | mark,
        }))
    }

    fn one(name: &str) -> u32 {
        match name {
            "connection" => Self::CONNECTION,
            "keep-alive" | "proxy-connection" | "upgrade" => Self::HOP_BY_HOP,
            "te" => Self::TE,
            "transfer-encoding" => Self::TRANSFER_ENCODING,
            "content-length" => Self::CONTENT_LENGTH,
            "content-type" => Self::GRPC,
            "forwarded" | "x-real-ip" => Self::FORWARDING,
            "connect-protocol-version" => Self::RPC,
            "accept" | "sec-fetch-mode" | "x-requested-with" => Self::BROWSER,
            "origin" => Self::ORIGIN,
            "grpc-timeout" | "connect-timeout-ms" => Self::TIMEOUT,
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

    pub(super) fn has(self, mark: u32) -> bool {
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

    /// Whether it is a call that its caller reads in a way of its own: gRPC, gRPC-Web, Connect.
    pub(crate) fn is_rpc(self) -> bool {
        self.has(Self::GRPC | Self::RPC)
    }

    /// Whether none of its fields says that it is anything but a plain request of a program.
    pub(crate) fn is_of_a_program(self) -> bool {
        !self.has(Self::GRPC | Self::RPC | Self::BROWSER | Self::ORIGIN | Self::HOP_BY_HOP)
    }

    /// Whether it may be a browser's.
    pub(crate) fn is_of_browser(self) -> bool {
        self.has(Self::BROWSER)
    }

    /// Whether it comes from a page, and says from which site.
    pub(crate) fn has_origin(self) -> bool {
        self.has(Self::ORIGIN)
    }

    /// Whether it says whether to wake, or how long to wait.
    pub(crate) fn has_wishes(self) -> bool {
        self.has(Self::WAKE | Self::TIMEOUT)
    }

    /// Whether it brings a token.
    pub(crate) fn has_token(self) -> bool {
        self.has(Self::TOKEN)
    }
}

/// Programs say `*/*`, and so do a page's scripts.
fn accepts_html(value: &HeaderValue) -> bool {
    value.as_bytes().windows(HTML.len()).any(|part| part.eq_ignore_ascii_case(HTML))
}

const HTML: &[u8] = b"text/html";

fn is_plain_number(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_digit) && (value.len() == 1 || !value.starts_with(b"0"))
}

/// How forwarding fields begin that only a trusted peer may send.
pub(super) const CLAIM: &str = "x-forwarded-";
