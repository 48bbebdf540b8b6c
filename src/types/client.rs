//! Whom a bound counts as one client.

use std::net::IpAddr;

/// A client as bounds count it: an IPv4 address, or the /64 that an IPv6 customer has at least (RFC 6177 §2), all of
/// whose addresses one client can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientNet(Net);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Net {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl From<IpAddr> for ClientNet {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => Net::V4(address.octets()),
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64;
                Net::V6(u64::try_from(network).unwrap_or_default().to_be_bytes())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_is_one_client_and_a_mapped_address_is_the_one_it_maps() {
        let net = |text: &str| ClientNet::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(net("2001:db8:0:1::1"), net("2001:db8:0:1:ffff::2"));
        assert_ne!(net("2001:db8:0:1::1"), net("2001:db8:0:2::1"));
        assert_eq!(net("::ffff:10.0.0.1"), net("10.0.0.1"));
        assert_ne!(net("10.0.0.1"), net("10.0.0.2"));
    }
}
