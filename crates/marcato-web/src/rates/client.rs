//! Address of a client, as far as it stands for one client.

use std::net::IpAddr;

/// Address of a client: all of an IPv4 address, or the first 64 bits of an IPv6 address.
///
/// A site usually has a /64, within which its hosts choose their addresses (RFC 4291 §2.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Client {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        // A socket for both versions reports IPv4 addresses as mapped ones (RFC 4291 §2.5.5.2).
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_network_of_64_bits_are_one_client() {
        let client = |text: &str| Client::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:0:0:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
