//! Who a connection is from: its peer, or whom a load balancer names in front of all else
//! (`server.proxy_protocol`).

use std::net::IpAddr;

use bytes::BytesMut;
use ipnet::IpNet;
use tokio::{
    io::AsyncReadExt as _,
    time::{Instant, timeout_at},
};

use super::{
    proxy_protocol::{self, Parsed},
    socket::Socket,
};
use crate::config::ProxyProtocol;

/// A header fits in it nearly always, and more than that is rarely read of what comes after.
const FIRST: usize = 256;

/// Whose word is taken.
#[derive(Clone, Debug)]
pub(crate) struct Introductions {
    pub(crate) protocol: ProxyProtocol,
    /// Peers that are believed; nobody else's header is read.
    pub(crate) trusted: Vec<IpNet>,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// A header is required, and the peer is none of those whose header counts.
    Untrusted,
    /// A header is required, and something else came.
    Missing,
    /// What came began like a header.
    Malformed,
    /// A header was not complete in time.
    Late,
    /// The peer left before it had said enough, or said nothing; as health checks do.
    Silent,
}

impl Refused {
    /// The label of the metric; who says nothing was not refused.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Untrusted => Some("untrusted"),
            Self::Missing => Some("missing"),
            Self::Malformed => Some("malformed"),
            Self::Late => Some("timeout"),
            Self::Silent => None,
        }
    }
}

impl Introductions {
    /// Takes the header off, if there is one; what comes after is still to be read.
    pub(super) async fn hear(&self, socket: &mut Socket, peer: IpAddr, due: Instant) -> Result<IpAddr, Refused> {
        let trusted = || self.trusted.iter().any(|network| network.contains(&peer));
        let required = match self.protocol {
            ProxyProtocol::Off => return Ok(peer),
            ProxyProtocol::Optional if !trusted() => return Ok(peer),
            ProxyProtocol::Required if !trusted() => return Err(Refused::Untrusted),
            ProxyProtocol::Optional => false,
            ProxyProtocol::Required => true,
        };
        let mut bytes = BytesMut::with_capacity(FIRST);
        loop {
            match proxy_protocol::parse(&bytes) {
                Parsed::Incomplete => {}
                Parsed::Malformed => return Err(Refused::Malformed),
                Parsed::NotOne if required => return Err(Refused::Missing),
                Parsed::NotOne => {
                    socket.unread(bytes.freeze());
                    return Ok(peer);
                }
                Parsed::Header { source, length } => {
                    socket.unread(bytes.split_off(length).freeze());
                    return Ok(source.unwrap_or(peer));
                }
            }
            match timeout_at(due, socket.read_buf(&mut bytes)).await {
                Ok(Ok(1..)) => {}
                // A part of a header, such as "P", is no request either.
                Ok(Ok(0) | Err(_)) => return Err(Refused::Silent),
                Err(_) if bytes.is_empty() => return Err(Refused::Silent),
                Err(_) => return Err(Refused::Late),
            }
        }
    }
}
