//! Network of a peer, for bounds per host.

use std::net::{IpAddr, Ipv4Addr};

/// Addresses that one host may use at will: an IPv4 address, or an IPv6 network of 64 bits
/// (RFC 4291 §2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Address of IPv4.
    V4(Ipv4Addr),
    /// First 64 bits of an IPv6 address.
    V6([u8; 8]),
}

impl From<IpAddr> for Network {
    fn from(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(addr) => Self::V4(addr),
            IpAddr::V6(addr) => {
                let [a, b, c, d, e, f, g, h, ..] = addr.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}
